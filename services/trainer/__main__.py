"""The trainer's front door: read the settings, wire, run until SIGTERM. torch is imported by the training process."""

from __future__ import annotations

from ratchet.bus.amqp.rabbit_bus import RabbitBus
from ratchet.runtime.runner import Wired, run
from services.trainer.follower import Follower
from services.trainer.settings import TrainerSettings
from services.trainer.worker import TrainerWorker


def wire() -> Wired:
    settings = TrainerSettings.read()
    bus = RabbitBus.from_settings(settings, name=TrainerWorker.name)
    worker = Follower(settings) if settings.trainer_machine_rank else TrainerWorker(settings, bus)
    return Wired(worker, bus, settings, settings.trainer_http_port)


if __name__ == "__main__":
    run(TrainerWorker.name, wire)
