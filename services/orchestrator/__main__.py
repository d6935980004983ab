"""The orchestrator's front door: read the settings, wire, run until SIGTERM."""

from __future__ import annotations

import os
import sys

from ratchet.bus.amqp.rabbit_bus import RabbitBus
from ratchet.files.file_system import refuse_wrong_storage
from ratchet.runtime.runner import Wired, run
from ratchet.service.telemetry import Log
from services.orchestrator.orchestrator import Orchestrator
from services.orchestrator.settings import OrchestratorSettings

log = Log(Orchestrator.name)


def wire() -> Wired:
    settings = OrchestratorSettings.read()
    refuse_wrong_storage(settings.logs_dir, settings.index_folder, settings.adapters_dir)
    heartbeat_s = max(1, int(settings.lease_s / 2))  # the broker takes back what a leader that hangs has in hand
    bus = RabbitBus.from_settings(settings, name=Orchestrator.name, heartbeat_s=heartbeat_s)
    return Wired(Orchestrator(settings, bus, on_lost=leave), bus, settings, settings.orchestrator_http_port)


def leave(why: str) -> None:
    """End at once: what is in hand is the other's now. Whoever supervises this process starts it as a standby."""
    log.error("superseded", why)
    sys.stdout.flush()
    os._exit(1)


if __name__ == "__main__":
    run(Orchestrator.name, wire)
