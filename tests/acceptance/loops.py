"""The demo's loop, on a fleet of a test's own."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

from rich.console import Console

from ratchet.adapters.registry import RegistryStore
from ratchet.bus.topology import fleet_topology
from ratchet.cli.demo.adapter_status import AdapterStatusReader
from ratchet.cli.demo.books import Users
from ratchet.cli.demo.loop import Loop, LoopPlan
from ratchet.cli.demo.narrator import Narrator
from ratchet.cli.demo.tasks import users_tasks
from ratchet.cli.fleet.folder import FleetAccess, FleetRecord, StartedProgram
from ratchet.cli.fleet.options import FleetOptions
from ratchet.service.settings import FleetSettings
from schemas.messages.task import Task
from tests.acceptance.fleet import ORCHESTRATOR, Fleet

SAMPLES = 2
GROUPS = 40


def access_to(fleet: Fleet) -> FleetAccess:
    orchestrator = StartedProgram(name="orchestrator", http_port=fleet[ORCHESTRATOR].port, log=fleet[ORCHESTRATOR].log)
    record = FleetRecord(
        supervisor_pid=0,
        supervisor_started=0.0,
        stop_timeout_s=1.0,
        amqp_url=fleet.amqp_url,
        namespace=fleet.namespace,
        own_broker=False,
        logs_dir=fleet.logs,
        options=FleetOptions(),
        programs=(orchestrator,),
    )
    return FleetAccess(
        amqp_url=fleet.amqp_url,
        namespace=fleet.namespace,
        agents=fleet.agents,
        topology=fleet_topology(fleet.agents),
        logs_dir=fleet.logs,
        record=record,
    )


def paced(tasks: Iterator[Task], pause: Callable[[], object]) -> Iterator[Task]:
    for task in tasks:
        pause()
        yield task


def loop_on(fleet: Fleet, run: str, *, pause: Callable[[], object] = lambda: None) -> tuple[Loop, Users, io.StringIO]:
    """The loop, its users, who make this pause before each task, and what it tells."""
    access, told = access_to(fleet), io.StringIO()
    users = Users(access, paced(users_tasks(1, run, samples=SAMPLES), pause), stall_s=30.0)
    store = RegistryStore.of(FleetSettings(adapters_dir=fleet.folder / "adapters", logs_dir=fleet.logs))
    look = AdapterStatusReader(access, store, "small")
    plan = LoopPlan(turns=1, groups=GROUPS, patience_s=30.0)
    return Loop(look, users, Narrator(Console(file=told, width=200)), plan, run), users, told
