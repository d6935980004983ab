"""Front door of the orchestrator: `python -m services.orchestrator`, configured by RATCHET_… variables."""

from __future__ import annotations

from services.orchestrator.orchestrator import Orchestrator
from services.orchestrator.settings import OrchestratorSettings
from services.rabbitmq import RabbitBus
from services.service import run


def main() -> None:
    settings = OrchestratorSettings.read()
    bus = RabbitBus.from_settings(settings, name=Orchestrator.name)
    run(Orchestrator(settings, bus), bus, settings, http_port=settings.orchestrator_http_port)


if __name__ == "__main__":
    main()
