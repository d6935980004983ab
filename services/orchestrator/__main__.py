"""The orchestrator's front door: read the settings, wire, run until SIGTERM."""

from __future__ import annotations

from ratchet.bus.amqp.rabbit_bus import RabbitBus
from ratchet.runtime.runner import Wired, run
from services.orchestrator.orchestrator import Orchestrator
from services.orchestrator.settings import OrchestratorSettings


def wire() -> Wired:
    settings = OrchestratorSettings.read()
    bus = RabbitBus.from_settings(settings, name=Orchestrator.name)
    return Wired(Orchestrator(settings, bus), bus, settings, settings.orchestrator_http_port)


if __name__ == "__main__":
    run(Orchestrator.name, wire)
