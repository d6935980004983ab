"""The demo's loop, on a fleet of a test's own."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console

from demos.adapter_status import AdapterStatusReader
from demos.books import Users
from demos.loop import Loop, LoopPlan
from demos.sort.demo import users_tasks
from ratchet.adapters.registry import RegistryStore
from ratchet.bus.topology import fleet_topology
from ratchet.service.settings import FleetSettings
from schemas.messages.task import Task
from services.cli.fleet.folder import FleetAccess
from services.cli.fleet.options import FleetOptions
from services.cli.narrator import Narrator
from tests.acceptance.fleet import ORCHESTRATOR, Fleet
from tests.acceptance.scoring import scored
from tests.services.cli.started import started

SAMPLES = 2
GROUPS = 40
DECIDES_SOON = {
    "RATCHET_EXPERIMENT_MIN_UNITS_PER_ARM": "10",
    "RATCHET_WATCH_SHARE": "0",
}
BY_VERSION = DECIDES_SOON | scored({"v1.0.0": 0.3, "v1.0.1": 0.6, "v1.0.2": 0.2})
"""A fleet whose versions have these mean scores, and which decides soon."""


def access_to(fleet: Fleet) -> FleetAccess:
    here: dict[str, Any] = {"amqp_url": fleet.amqp_url, "namespace": fleet.namespace, "logs_dir": fleet.logs}
    return FleetAccess(
        agents=fleet.agents,
        topology=fleet_topology(fleet.agents),
        record=started(FleetOptions(), {"orchestrator": fleet[ORCHESTRATOR].port}, own_broker=False, **here),
        **here,
    )


def paced(tasks: Iterator[Task], pause: Callable[[], object]) -> Iterator[Task]:
    for task in tasks:
        pause()
        yield task


def loop_on(fleet: Fleet, run: str, *, pause: Callable[[], object] = lambda: None) -> tuple[Loop, Users, io.StringIO]:
    """Return the loop, its users, who pause before each task, and its output."""
    access, told = access_to(fleet), io.StringIO()
    users = Users(access, paced(users_tasks(1, run, samples=SAMPLES), pause), stall_s=60.0)
    store = RegistryStore.from_settings(FleetSettings(adapters_dir=fleet.folder / "adapters", logs_dir=fleet.logs))
    look = AdapterStatusReader(access, store, "small")
    plan = LoopPlan(groups=GROUPS, patience_s=60.0)
    return Loop(look, users, Narrator(Console(file=told, width=200)), plan, run), users, told
