"""The six real services, not started, over one bus: for their applications."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ratchet.bus.protocol import Bus
from ratchet.bus.topology import fleet_topology
from ratchet.client import AsyncFleet
from ratchet.http.access.matrix import AccessRule, matrix_of
from ratchet.http.server.application import application, routes_of
from ratchet.programs.declared import NONE
from ratchet.runtime.runner import Service
from ratchet.service.settings import FleetSettings
from services.agent.engines.scripted import EchoEngine
from services.agent.settings import AgentSettings
from services.agent.worker import AgentWorker
from services.manager.database import Database
from services.manager.settings import ManagerSettings
from services.manager.worker import ManagerWorker
from services.orchestrator.orchestrator import Orchestrator
from services.orchestrator.settings import OrchestratorSettings
from services.runner.settings import RunnerSettings
from services.runner.worker import RunnerWorker
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.installed import build_strategy
from services.scorer.worker import ScorerWorker
from services.trainer.settings import TrainerSettings
from services.trainer.worker import TrainerWorker
from tests.memory_bus import MemoryBus

NAMES = ("agent", "manager", "runner", "scorer", "trainer", "orchestrator")


def settings_of(name: str, folder: Path, **given: Any) -> FleetSettings:
    kinds = {
        "agent": AgentSettings,
        "manager": ManagerSettings,
        "runner": RunnerSettings,
        "scorer": ScorerSettings,
        "trainer": TrainerSettings,
    }
    kind = kinds.get(name, OrchestratorSettings)
    if name == "manager":
        given = {"manager_db": f"sqlite:///{folder}/jobs.sqlite"} | given
    return kind(logs_dir=folder / "logs", adapters_dir=folder / "adapters", **given)


def service_of(settings: FleetSettings, bus: Bus | None = None) -> Service:
    bus = bus or MemoryBus(fleet_topology(("small",)))
    match settings:
        case AgentSettings():
            return AgentWorker(settings, bus, EchoEngine())
        case ManagerSettings():
            url = settings.amqp_url.get_secret_value()
            database = Database(settings.manager_db.get_secret_value())
            return ManagerWorker(settings, database, lambda: AsyncFleet(url, namespace=settings.namespace))
        case RunnerSettings():
            return RunnerWorker(settings, bus, NONE)
        case ScorerSettings():
            return ScorerWorker(settings, bus, build_strategy(settings))
        case TrainerSettings():
            return TrainerWorker(settings, bus)
        case OrchestratorSettings():
            return Orchestrator(settings, bus)
    raise AssertionError(settings)


@cache
def rules_of(name: str) -> tuple[AccessRule, ...]:
    """Return what the routes of the real service declare."""
    with TemporaryDirectory() as folder:
        settings = settings_of(name, Path(folder))
        service = service_of(settings)
        return matrix_of(name, routes_of(application(name, service.routers(), settings, service.trouble))).rules
