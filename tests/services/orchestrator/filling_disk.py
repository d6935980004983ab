"""An orchestrator on a disk that is filled and freed while tasks come in; its logs and index are checked each time.

The short version is a test, the long one `python -m bench.faults --only enospc --cycles 1000`.
"""

from __future__ import annotations

import random
import sqlite3
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ratchet.bus.protocol import Delivery
from ratchet.logs.names import ASSIGNMENTS
from ratchet.logs.reader import read
from ratchet.service.errors import StorageUnavailable
from schemas import Result, Task, Work
from services.orchestrator.ledger.catch_up import CatchUp
from services.orchestrator.ledger.index import TaskIndex
from tests.services.orchestrator.house import House, answered, scored
from tests.services.orchestrator.small_disk import SmallDisk, small_disk
from tests.waiting import settled, until

DISK_BYTES = 48 * 1024 * 1024
MOST_FREE_BYTES = 1024 * 1024
TASKS = 20
FULL_S = 0.04
ROUND = 50
"""Cycles over one folder of logs: building its index again, after each cycle, takes as long as it has tasks."""
EXPIRES = 0.02
"""The share of tasks that nobody answers."""

Row = tuple[Any, ...]


@dataclass
class Books:
    """The faults found, and the number of checks."""

    cycles: int = 0
    tasks: int = 0
    pauses: int = 0
    """Commits of the index that the full disk refused."""
    statuses: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)


async def fill_and_free(folder: Path, cycles: int, seed: int) -> Books:
    """Repeat: fill the disk but for a random rest, let tasks and Rewards come, free it, compare."""
    books, draw = Books(), random.Random(seed)
    while books.cycles < cycles and not books.complaints:
        with small_disk(folder / f"round-{books.cycles}", DISK_BYTES) as disk:
            await _round(disk, min(ROUND, cycles - books.cycles), books, draw)
    return books


async def _round(disk: SmallDisk, cycles: int, books: Books, draw: random.Random) -> None:
    fleet = House(disk.folder / "logs")
    unanswered: set[str] = set()

    async def answer(delivery: Delivery) -> None:
        work = Work.decode(delivery.body)
        if work.task_id not in unanswered:
            await fleet.reward(scored(answered(work, "a" * draw.randrange(1, 3_000), "b"), 0.25, 0.75))

    await fleet.open()
    await fleet.bus.consume("work.small", answer, prefetch=10)
    sent: list[str] = []
    for _ in range(cycles):
        sent += await _cycle(fleet, disk, books, draw, unanswered)
        await answers_of(fleet, set(sent) - unanswered)
        await until(lambda: committed(fleet, books))
        check(fleet, books)
        books.cycles += 1
    await answers_of(fleet, set(sent))
    await until(lambda: committed(fleet, books))
    check(fleet, books)
    await fleet.close()
    check_told(fleet, sent, books)
    books.tasks += len(sent)


async def _cycle(
    fleet: House, disk: SmallDisk, books: Books, draw: random.Random, unanswered: set[str]
) -> Sequence[str]:
    disk.leave(draw.randrange(MOST_FREE_BYTES) if draw.random() < 0.5 else draw.randrange(256 * 1024))
    sent = [f"t{books.cycles}-{number}" for number in range(TASKS)]
    for task_id in sent:
        deadline = None
        if draw.random() < EXPIRES:
            unanswered.add(task_id)
            deadline = datetime.now(UTC) + timedelta(seconds=1)
        await fleet.submit(Task(task_id=task_id, input="x" * draw.randrange(10, 4_000), deadline=deadline))
        if draw.random() < 0.3:
            committed(fleet, books)
    await settled(draw.uniform(0, FULL_S))
    committed(fleet, books)
    disk.empty()
    return sent


def committed(fleet: House, books: Books) -> bool:
    """Commit, as the clock does twice a second. False where the disk, or an index not yet mended, refused."""
    try:
        fleet.orchestrator.ledger.commit()
    except StorageUnavailable:
        books.pauses += 1
        return False
    return True


async def answers_of(fleet: House, tasks: set[str]) -> None:
    await until(lambda: {Result.decode(reply.body).task_id for reply in fleet.replies} >= tasks, timeout_s=60.0)


def check(fleet: House, books: Books) -> None:
    """Check that every assignment is known, no number was given twice, and the committed index is that of the logs."""
    ledger = fleet.orchestrator.ledger
    ends = ledger.positions()
    works = [Work.decode(line.data) for line in read(fleet.folder, ASSIGNMENTS)]
    numbers = Counter(work.arm.sequence for work in works)
    for number in (number for number, count in numbers.items() if count > 1):
        books.complaints.append(f"cycle {books.cycles}: number {number} was given twice")
    live = rows(fleet.folder / "index.sqlite")
    known = {row[1] for row in live}
    for work in works:
        if work.task_id not in known or ledger.find(work.task_id) is None:
            books.complaints.append(f"cycle {books.cycles}: {work.task_id} is in the log, and not known")
    if (built := rebuilt(fleet.folder, ends)) != live:
        mine, theirs = next(pair for pair in zip_longest(live, built) if pair[0] != pair[1])
        books.complaints.append(f"cycle {books.cycles}: the index has {mine}, the logs say {theirs}")
    endings = Counter(line.task_id for line in fleet.logged() if line.sample in (None, 0))
    for task_id in (task_id for task_id, count in endings.items() if count > 1):
        books.complaints.append(f"cycle {books.cycles}: {task_id} ended {endings[task_id]} times in the log")


def check_told(fleet: House, sent: Sequence[str], books: Books) -> None:
    told: dict[str, set[str]] = defaultdict(set)
    for reply in fleet.replies:
        result = Result.decode(reply.body)
        told[result.task_id].add(result.status)
    for task_id in sent:
        if len(told[task_id]) != 1:
            books.complaints.append(f"{task_id} was told {sorted(told[task_id])}")
        books.statuses.update(told[task_id])


def rows(index: Path) -> list[Row]:
    """Return all tasks as committed, without the Work of ended ones, which stays until the user has the Result."""
    with closing(sqlite3.connect(f"{index.absolute().as_uri()}?mode=ro", uri=True)) as db:
        columns = "sequence, task_id, deadline, logged, iif(ended IS NULL, work, NULL), result, line, lines, ended"
        return db.execute(f"SELECT {columns} FROM tasks ORDER BY sequence").fetchall()


def rebuilt(logs: Path, ends: Mapping[str, int]) -> list[Row]:
    """Return the rows of an index made from the logs alone, up to these bytes."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "index.sqlite"
        index = TaskIndex(path)
        CatchUp(logs, index, ends).run()
        index.commit()
        index.close()
        return rows(path)
