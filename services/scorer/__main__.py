"""The scorer's front door: read the settings, wire, run until SIGTERM."""

from __future__ import annotations

from services.rabbitmq import RabbitBus
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.registry import build_strategy
from services.scorer.worker import ScorerWorker
from services.service import Wired, run


def wire() -> Wired:
    settings = ScorerSettings.read()
    bus = RabbitBus.from_settings(settings, name=ScorerWorker.name)
    worker = ScorerWorker(settings, bus, build_strategy(settings))
    return Wired(worker, bus, settings, settings.scorer_http_port)


if __name__ == "__main__":
    run(ScorerWorker.name, wire)
