"""The scorer's front door: read the settings, wire, run until SIGTERM."""

from __future__ import annotations

from ratchet.bus.amqp.rabbit_bus import RabbitBus
from ratchet.runtime.runner import Wired, run
from services.scorer.deliberation import JudgesOrder
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.installed import build_strategy
from services.scorer.worker import ScorerWorker


def wire() -> Wired:
    settings = ScorerSettings.read().own
    bus = RabbitBus.from_settings(settings, name="auditor" if settings.scorer_audits else ScorerWorker.name)
    worker = ScorerWorker(settings, bus, build_strategy(settings), order=JudgesOrder.build(settings))
    return Wired(worker, bus, settings, settings.scorer_http_port)


if __name__ == "__main__":
    run(ScorerWorker.name, wire)
