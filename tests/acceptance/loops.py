"""The demo's loop, on a fleet of a test's own."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator

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


def paced(tasks: Iterator[Task], pause_s: float) -> Iterator[Task]:
    for task in tasks:
        time.sleep(pause_s)
        yield task


def loop_on(fleet: Fleet, run: str, *, pause_s: float = 0.0) -> tuple[Loop, Users, io.StringIO]:
    """The loop, its users, who pause so long before each task, and what it tells."""
    access, told = access_to(fleet), io.StringIO()
    users = Users(access, paced(users_tasks(1, run, samples=SAMPLES), pause_s), stall_s=30.0)
    look = Look(access, RegistryStore(fleet.folder / "adapters"), "small")
    plan = LoopPlan(turns=1, groups=GROUPS, patience_s=30.0)
    return Loop(look, users, Narrator(Console(file=told, width=200)), plan, run), users, told
