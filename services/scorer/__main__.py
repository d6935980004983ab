"""The scorer's front door: read the settings, wire, run until SIGTERM."""

from __future__ import annotations

import sys

from services.errors import RatchetError
from services.rabbitmq import RabbitBus
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.registry import build_strategy
from services.scorer.worker import ScorerWorker
from services.service import run
from services.telemetry import Log, log_to_stdout


def main() -> None:
    log_to_stdout("scorer")
    try:
        settings = ScorerSettings.read()
        strategy = build_strategy(settings)
    except RatchetError as error:
        Log("scorer").error("failed", str(error))
        sys.exit(1)
    bus = RabbitBus.from_settings(settings, name=ScorerWorker.name)
    run(ScorerWorker(settings, bus, strategy), bus, settings, http_port=settings.scorer_http_port)


if __name__ == "__main__":
    main()
