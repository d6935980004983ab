"""The demo's loop, on a fleet of a test's own."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

from rich.console import Console

from schemas.task import Task
from services.adapters.registry import RegistryStore
from services.cli.demo.loop import Loop, LoopPlan
from services.cli.demo.narrator import Narrator
from services.cli.demo.standing import Look
from services.cli.demo.tasks import users_tasks
from services.cli.demo.users import Users
from services.cli.fleet.fleet_access import FleetAccess
from services.cli.fleet.fleet_folder import FleetRecord, StartedProgram
from services.cli.fleet.fleet_options import FleetOptions
from services.topology import fleet_topology
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
    look = Look(access, RegistryStore(fleet.folder / "adapters"), "small")
    plan = LoopPlan(turns=1, groups=GROUPS, patience_s=30.0)
    return Loop(look, users, Narrator(Console(file=told, width=200)), plan, run), users, told
