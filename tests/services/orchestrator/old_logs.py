"""Logs of many small sealed segments, and the work of retention on them; run as a program, retention alone.

python old_logs.py LOGS KEEP_BYTES
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ratchet.logs.retention.needs import needs
from ratchet.logs.retention.plan import Bound
from ratchet.logs.retention.pruner import Pruned, Pruner
from schemas import Interaction, Task, Work
from schemas.messages.work import Arm, Sampling
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.tasks.admission import AdmissionPolicy, Origin, admit
from services.orchestrator.tasks.settlement import settle
from tests.programs import REPOSITORY, Ran, run_module
from tests.services.orchestrator.house import answered, scored

NOW = datetime(2031, 1, 1, tzinfo=UTC)
SEGMENT_BYTES = 8192
EVERY = 10
"""Tasks between two looks whether a log was sealed."""


async def open_ledger(folder: Path) -> Ledger:
    ledger = Ledger(folder, segment_bytes=SEGMENT_BYTES)
    await ledger.open()
    return ledger


async def admitted(ledger: Ledger, task_id: str, number: int) -> Work:
    policy = AdmissionPolicy(("small",), Sampling(n=2), timedelta(days=365))
    sequence = ledger.next_sequence()
    at = NOW + timedelta(minutes=number)
    work = admit(Task(task_id=task_id, input="x"), policy, arm=Arm(sequence=sequence), now=at, origin=Origin())
    await ledger.admit(work)
    return work


def lines_of(work: Work) -> list[Interaction]:
    response = answered(work, "a", "b")
    return settle(scored(response, 0.1, 0.9), response, work, work.admitted_at)


async def answer(ledger: Ledger, first: int, last: int, *, stays_open: int | None = None) -> None:
    """Log tasks t<first> to before t<last>, a minute apart, all answered but `stays_open`."""
    for number in range(first, last):
        work = await admitted(ledger, f"t{number}", number)
        if number != stays_open:
            await ledger.settle(lines_of(work))
        if number % EVERY == 0:
            await ledger.seal_in_step()


def prune(folder: Path, keep_bytes: int, *, dry: bool = False) -> Pruned:
    return Pruner(folder, Bound(keep_bytes)).prune(needs(folder, folder / "adapters"), datetime.now(UTC), dry=dry)


def prune_until(failpoint: str, folder: Path, keep_bytes: int) -> Ran:
    """Prune in a process of its own, which is killed at the failpoint."""
    settings = {"RATCHET_FAILPOINT": failpoint}
    return run_module(__name__, str(folder), str(keep_bytes), folder=REPOSITORY, settings=settings)


if __name__ == "__main__":
    prune(Path(sys.argv[1]), int(sys.argv[2]))
