"""The table: each row a fault, to be met at each step of a task's life."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bench.faults.rig import ADAPTERS, DEAD_LETTERS, INDEX, LOGS, Rig
from bench.faults.steps import STEPS, Step
from bench.faults.strikes import (
    DAY,
    YEAR,
    Strike,
    clock_step,
    cut,
    failing,
    full,
    halt,
    halt_leader,
    hostile,
    kill,
    kill_broker,
    meddle,
    memory_alarm,
    partition,
    read_only,
)
from tests.acceptance.fleet import ORCHESTRATOR

log = logging.getLogger(__name__)


class Fault(NamedTuple):
    """`lasts_s`: how long at least and at most, from the moment the service was halted at the step."""

    name: str
    what: str
    strike: Strike
    lasts_s: tuple[float, float] = (0.2, 2.0)
    hurried: float = 0.02
    """Share of the tasks that have but seconds: told by our clock, which is of no use where the services' is set."""
    steps: tuple[Step, ...] = STEPS


LEADS = tuple(step for step in STEPS if step.service == ORCHESTRATOR)
FAULTS = (
    Fault("kill", "kill -9 of the step's service", kill, (0.0, 0.5)),
    Fault("halt", "SIGSTOP, later SIGCONT, of the step's service", halt, (0.2, 5.0)),
    Fault(
        "halt-leader", "SIGSTOP of the orchestrator beside a standby, later SIGCONT", halt_leader, (0.2, 2.0), 0, LEADS
    ),
    Fault("kill-broker", "kill -9 of the broker, which comes back", kill_broker, (0.0, 2.0)),
    Fault("enospc-logs", "the disk of the logs has room for 0 to 1 MB", full(LOGS)),
    Fault("enospc-index", "the disk of the index has room for 0 to 1 MB", full(INDEX)),
    Fault("enospc-dead-letters", "the disk of stored dead letters has room for 0 to 1 MB", full(DEAD_LETTERS)),
    Fault("enospc-adapters", "the disk of adapters and registry has room for 0 to 1 MB", full(ADAPTERS)),
    Fault("eio", "every system call on the logs, or on the adapters, fails with EIO", failing(errno.EIO)),
    Fault("estale", "the same with ESTALE, as a file server that is gone", failing(errno.ESTALE)),
    Fault("erofs", "the same with EROFS for all that writes", failing(errno.EROFS, writes_only=True)),
    Fault("read-only", "the logs' disk is really read-only when the killed service comes back", read_only, (1.0, 4.0)),
    Fault("partition", "no byte passes between the service and the broker", partition, (0.5, 8.0)),
    Fault("cut", "the service's connections are reset, twice", cut),
    Fault("memory-alarm", "the broker's memory alarm blocks every publisher", memory_alarm),
    Fault("clock+day", "the wall clock of all services is set ahead by a day, then back", clock_step(DAY), hurried=0),
    Fault("clock-day", "… back by a day, then ahead", clock_step(-DAY), hurried=0),
    Fault("clock+year", "… ahead by a year, then back", clock_step(YEAR), hurried=0),
    Fault("clock-year", "… back by a year, then ahead", clock_step(-YEAR), hurried=0),
    Fault("duplicates", "what the step takes comes two times, in another order", meddle(copies=2)),
    Fault("reorder", "what the step takes comes in another order", meddle(copies=1)),
    Fault("hostile", "1,500 messages that outsiders made to do harm, over all queues", hostile(1_500), hurried=0),
)


@dataclass
class Row:
    """The outcome of one fault."""

    fault: str
    strikes: dict[str, int] = field(default_factory=dict)
    """Number of strikes by step."""
    slowest_s: float = 0.0
    """The time from the end of a fault until tasks were answered again."""
    tasks: int = 0
    lost: int = 0
    logged_twice: int = 0
    complaints: list[str] = field(default_factory=list)

    def count(self, rig: Rig) -> None:
        """Add the figures of a rig at rest."""
        ledger = rig.user.ledger
        self.tasks += len(ledger.acknowledged)
        self.lost += len(ledger.lost)
        self.logged_twice += len(ledger.logged_twice | {(task, None) for task in ledger.admitted_twice})
        self.complaints += rig.complaints


async def strike(rig: Rig, fault: Fault, step: Step, row: Row) -> None:
    """Halt the service at the step, do what the fault does, end it, and wait until tasks are answered again."""
    began = time.monotonic()
    if not await rig.halt_at(step):
        return
    halted_s = time.monotonic() - began
    row.strikes[step.name] = row.strikes.get(step.name, 0) + 1
    async with fault.strike(rig, step):
        await asyncio.sleep(rig.draw.uniform(*fault.lasts_s))
    took_s = await rig.answers_again()
    if took_s is None:
        rig.complaints.append(f"{fault.name} at {step.name}: nothing was answered for a minute after it")
    row.slowest_s = max(row.slowest_s, took_s or 0.0)
    lasted_s = time.monotonic() - began - halted_s - (took_s or 0.0)
    log.info("%s at %s: halted after %.1f s, for %.1f s, answers after %.1f s", fault.name, step.name,
             halted_s, lasted_s, took_s or float("inf"))  # fmt: skip


def select_faults(names: Sequence[str]) -> list[Fault]:
    """Return the faults of these names, or all. A name of no row, such as `clock`, is a prefix. Raises ValueError."""
    there = [fault.name for fault in FAULTS]
    wanted = {one for name in names or there for one in ([name] if name in there else _beginning(there, name))}
    return [fault for fault in FAULTS if fault.name in wanted]


def _beginning(names: Sequence[str], start: str) -> list[str]:
    found = [name for name in names if name.startswith(start)]
    if not found:
        raise ValueError(f"there is no fault {start!r}; there are {', '.join(names)}")
    return found
