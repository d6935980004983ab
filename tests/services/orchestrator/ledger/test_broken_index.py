"""The index broken at every await of admission and settlement, while syncing is slow: nobody is told two things."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ratchet.bus.protocol import Delivery
from ratchet.files.append_file import AppendFile
from ratchet.logs.index_check import disagreement
from schemas import Result, Task, Work
from services.orchestrator.ledger.index import INSERT, IndexUnusable, TaskIndex
from services.orchestrator.ledger.ledger import Ledger
from tests.services.orchestrator.filling_disk import rebuilt, rows
from tests.services.orchestrator.house import answered, house, scored
from tests.services.orchestrator.ledger.test_ledger import admitted, lines_of, opened
from tests.waiting import settled, until

SLOW_S = 0.2
TASKS = 12


class SlowFile(AppendFile):
    def sync(self) -> None:
        time.sleep(SLOW_S)  # real time: a slow disk
        super().sync()


async def break_again_and_again(ledger: Ledger, every_s: float) -> None:
    """As a full disk does: what was not committed is gone, and the connection commits by itself."""
    while True:
        await asyncio.sleep(every_s)  # real time: at any moment of the ledger's work
        if not ledger._index.broken:
            ledger._index._db.execute("ROLLBACK")


@pytest.mark.parametrize("every_s", [0.011, 0.05, 0.13])
async def test_no_task_ends_twice_and_none_is_untold_while_the_index_breaks(tmp_path: Path, every_s: float) -> None:
    async with house(tmp_path, file_type=SlowFile) as fleet:
        silent = {"t3", "t7"}

        async def answer(delivery: Delivery) -> None:
            work = Work.decode(delivery.body)
            if work.task_id not in silent:
                await fleet.reward(scored(answered(work, "a", "b"), 0.1, 0.2))

        await fleet.bus.consume("work.small", answer, prefetch=4)
        breaking = asyncio.create_task(break_again_and_again(fleet.orchestrator.ledger, every_s))
        soon = datetime.now(UTC) + timedelta(seconds=2)
        for number in range(TASKS):
            deadline = soon if f"t{number}" in silent else None
            await fleet.submit(Task(task_id=f"t{number}", input="x", deadline=deadline))
            await asyncio.sleep(0.03)  # real time: the breaks come between tasks
        await until(
            lambda: len({Result.decode(reply.body).task_id for reply in fleet.replies}) == TASKS, timeout_s=60.0
        )
        breaking.cancel()

        ledger = fleet.orchestrator.ledger
        ledger.commit()
        told = defaultdict(set)
        for reply in fleet.replies:
            told[Result.decode(reply.body).task_id].add(Result.decode(reply.body).status)
        assert {task_id: sorted(statuses) for task_id, statuses in told.items()} == {
            f"t{number}": ["expired" if f"t{number}" in silent else "ok"] for number in range(TASKS)
        }
        assert set(Counter((line.task_id, line.sample) for line in fleet.logged()).values()) == {1}
        assert rows(tmp_path / "index.sqlite") == rebuilt(tmp_path, ledger.positions())


async def test_a_mend_leaves_out_what_is_not_on_disk_yet_and_counts_it_in_when_it_is(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, segment_bytes=1 << 20, file_type=SlowFile)
    await ledger.open()
    admitting = asyncio.create_task(admitted(ledger, "t1"))
    await settled(SLOW_S / 2)
    ledger.index._db.execute("ROLLBACK")
    ledger.commit()
    assert ledger.find("t1") is None

    work = await admitting
    ledger.index._db.execute("ROLLBACK")
    await ledger.settle(lines_of(work))
    ledger.commit()

    known = ledger.find("t1")
    assert known is not None
    assert known.result is not None
    assert rows(tmp_path / "index.sqlite") == rebuilt(tmp_path, ledger.positions())
    await ledger.close()


async def test_what_no_log_has_survives_a_broken_index_and_one_built_again(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    await admitted(ledger, "t1")
    await ledger.add_waiter("t1", "second", None)
    ledger.index.write_note("n", b"not committed")
    ledger.index._db.execute("ROLLBACK")
    ledger.commit()
    assert (ledger.index.waiters("t1"), ledger.index.note("n")) == ([("second", None)], b"not committed")
    await ledger.close()
    with sqlite3.connect(tmp_path / "index.sqlite") as db:
        db.execute("DELETE FROM tasks")

    again = await opened(tmp_path)

    assert again.find("t1") is not None
    assert (again.index.waiters("t1"), again.index.note("n")) == ([("second", None)], b"not committed")
    assert again.next_sequence() == 1
    assert not list(tmp_path.glob("*.broken*"))
    await again.close()


@pytest.mark.parametrize("forgotten_rows", ["counted", "of the version before"])
async def test_an_index_that_says_it_knows_what_it_does_not_is_found_and_built_again(
    tmp_path: Path, forgotten_rows: str
) -> None:
    ledger = await opened(tmp_path)
    works = [await admitted(ledger, f"t{number}") for number in range(30)]
    for work in works[:20]:
        await ledger.settle(lines_of(work))
    await ledger.close()
    assert disagreement(tmp_path / "index.sqlite", tmp_path) is None
    before = rows(tmp_path / "index.sqlite")
    with sqlite3.connect(tmp_path / "index.sqlite") as db:
        db.execute("DELETE FROM tasks WHERE sequence BETWEEN 5 AND 9")
        db.execute("DELETE FROM positions WHERE log = 'tasks.rows'") if forgotten_rows != "counted" else None

    assert disagreement(tmp_path / "index.sqlite", tmp_path) is not None
    again = await opened(tmp_path)

    assert again.next_sequence() == 30
    await again.close()
    assert rows(tmp_path / "index.sqlite") == before


async def test_a_settlement_that_the_index_lost_is_found(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    work = await admitted(ledger, "t1")
    await ledger.settle(lines_of(work))
    await ledger.close()
    with sqlite3.connect(tmp_path / "index.sqlite") as db:
        db.execute("UPDATE tasks SET result = NULL, ended = NULL, logged = 0")

    assert "is open in it" in str(disagreement(tmp_path / "index.sqlite", tmp_path))


async def test_a_number_that_was_given_twice_is_quarantined_and_never_given_again(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    first = await admitted(ledger, "t1")
    twice = first.model_copy(update={"task_id": "t2"})
    await ledger.close()
    with (tmp_path / "assignments.jsonl").open("ab") as file:
        file.write(twice.encode() + b"\n")

    again = await opened(tmp_path)

    assert again.find("t2") is None
    assert "the number 0 was given before, to task t1" in (tmp_path / "quarantine.jsonl").read_text()
    assert again.next_sequence() == 1
    await again.close()
    assert disagreement(tmp_path / "index.sqlite", tmp_path) is None


def test_after_an_error_nothing_more_is_attempted_on_the_connection(tmp_path: Path) -> None:
    index = TaskIndex(tmp_path / "index.sqlite")
    index.admit(0, "t0", 1.0, b"work")
    index.commit({"assignments": 10})
    index.admit(1, "t1", 1.0, b"work")
    index._db.execute(f"{INSERT} VALUES (1, 'other', 1, 0, NULL, NULL, 0, NULL, NULL)")

    for _ in range(3):
        with pytest.raises(IndexUnusable):
            index.commit({"assignments": 20})

    again = TaskIndex(tmp_path / "index.sqlite")
    assert (again.position("assignments"), again.find("t1"), again.find("other")) == (10, None, None)
    again.close()
