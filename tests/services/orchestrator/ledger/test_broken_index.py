"""The index broken at every await of admission and settlement, while syncing is slow: nobody is told two things."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
import types
from collections.abc import Coroutine, Generator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ratchet.files.append_file import AppendFile
from ratchet.logs.index_check import disagreement
from schemas import Task
from services.orchestrator.ledger.index import INSERT, TaskIndex
from services.orchestrator.ledger.indexed_log import IndexUnusable
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.tasks.settlement import ending
from tests.services.orchestrator.filling_disk import rebuilt, rows
from tests.services.orchestrator.house import answered, house, scored
from tests.services.orchestrator.ledger.test_ledger import NOW, admitted, lines_of, open_ledger
from tests.waiting import until

SLOW_S = 0.2
TASKS = 12


class SlowFile(AppendFile):
    def sync(self) -> None:
        time.sleep(SLOW_S)  # real time: a slow disk
        super().sync()


class EachAwait:
    """Breaks the index just before the `number`-th time that a task of admission, settlement or telling goes on."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.ledger: Ledger | None = None

    @property
    def has_broken(self) -> bool:
        return self._left < 0

    def make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        """A task factory: see asyncio.loop.set_task_factory."""
        clock = "Clocks." in coroutine.__qualname__
        return asyncio.Task(coroutine if clock else self._followed(coroutine), loop=loop, **options)

    async def _followed(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return await self._steps(coroutine)

    @types.coroutine
    def _steps(self, coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        error: BaseException | None = None
        while True:
            self._count()
            try:
                awaited = coroutine.throw(error) if error is not None else coroutine.send(None)
            except StopIteration as end:
                return end.value
            try:
                yield awaited
                error = None
            except BaseException as raised:
                error = raised

    def _count(self) -> None:
        if self.ledger is not None:
            self._left -= 1
            if self._left == -1:
                break_index(self.ledger)


def break_index(ledger: Ledger) -> None:
    """As a full disk does: what was not committed is gone, and the connection commits by itself."""
    if not ledger._index.broken and ledger._index._db.in_transaction:
        ledger._index._db.execute("ROLLBACK")


AWAITS = 9
"""Fewer than a task of two samples has from its admission to its Result, whichever way it ends."""


@pytest.mark.parametrize("answers", [True, False], ids=["answered", "expired"])
async def test_no_task_ends_twice_and_none_is_untold_at_whichever_await_the_index_breaks(
    tmp_path: Path, answers: bool
) -> None:
    """Several fleets at a time, for each waits for its slow disk; the last one breaks behind the end."""
    broken = await asyncio.gather(
        *(asyncio.to_thread(asyncio.run, broken_at(tmp_path / str(n), n, answers)) for n in range(2 * AWAITS))
    )
    assert all(broken[:AWAITS])
    assert not all(broken), "more awaits than are tried"


async def broken_at(folder: Path, number: int, answers: bool) -> bool:
    """Whether the index was broken before the task had ended."""
    steps = EachAwait(number)
    asyncio.get_running_loop().set_task_factory(steps.make_task)
    folder.mkdir()
    async with house(folder, file_type=SlowFile) as fleet:
        ledger = steps.ledger = fleet.orchestrator.ledger
        deadline = None if answers else datetime.now(UTC) + timedelta(seconds=10 * SLOW_S)
        await fleet.submit(Task(task_id="t", input="x", deadline=deadline))
        (work, *_) = await fleet.work()
        if answers:
            await fleet.reward(scored(answered(work, "a", "b"), 0.1, 0.2))
        await fleet.results()
        has_broken = steps.has_broken
        steps.ledger = None
        break_index(ledger)
        ledger.commit()

        assert {result.status for result in await fleet.results()} == {"ok" if answers else "expired"}
        logged = [line.sample for line in fleet.logged()]
        assert logged == ([0, 1] if answers else [None])
        assert rows(folder / "index.sqlite") == rebuilt(folder, ledger.positions())
    return has_broken


async def test_a_mend_leaves_out_what_is_not_on_disk_yet_and_counts_it_in_when_it_is(tmp_path: Path) -> None:
    syncing, may_sync = threading.Event(), threading.Event()
    may_sync.set()

    class HeldFile(AppendFile):
        def sync(self) -> None:
            syncing.set()
            may_sync.wait()
            super().sync()

    ledger = Ledger(tmp_path, segment_bytes=1 << 20, file_type=HeldFile)
    await ledger.open()
    syncing.clear()
    may_sync.clear()
    admitting = asyncio.create_task(admitted(ledger, "t1"))
    await asyncio.to_thread(syncing.wait)
    ledger.index._db.execute("ROLLBACK")
    ledger.commit()
    assert ledger.find("t1") is None

    may_sync.set()
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
    ledger = await open_ledger(tmp_path)
    await admitted(ledger, "t1")
    await ledger.add_waiter("t1", "second", None)
    ledger.index.write_note("n", b"not committed")
    ledger.index._db.execute("ROLLBACK")
    ledger.commit()
    assert (ledger.index.waiters("t1"), ledger.index.note("n")) == ([("second", None)], b"not committed")
    await ledger.close()
    with sqlite3.connect(tmp_path / "index.sqlite") as db:
        db.execute("DELETE FROM tasks")

    again = await open_ledger(tmp_path)

    assert again.find("t1") is not None
    assert (again.index.waiters("t1"), again.index.note("n")) == ([("second", None)], b"not committed")
    assert again.next_sequence() == 1
    assert not list(tmp_path.glob("*.new*"))
    await again.close()


async def test_a_corrupt_index_is_built_again_while_the_process_goes_on(tmp_path: Path) -> None:
    """Requests meanwhile are told to wait, and the event loop goes on while a year of lines is read."""
    ledger = await open_ledger(tmp_path)
    works = [await admitted(ledger, f"t{number}") for number in range(6)]
    for work in works[:2]:
        await ledger.settle(lines_of(work))
    expired, untold = works[2:4]
    for work in (expired, untold):
        await ledger.settle([ending(work, "expired", "too late", NOW)])
    ledger.mark_result_sent(expired.task_id)
    await ledger.add_waiter("t5", "second", None)
    ledger.index.write_note("n", b"not committed")
    ledger.index.give_up(sqlite3.DatabaseError("database disk image is malformed"))

    with pytest.raises(IndexUnusable, match="built again from the logs"):
        ledger.commit()
    late = await admitted(ledger, "late")
    await rebuilt_aside(ledger)
    ledger.commit()

    assert [entry.task_id for entry in map(ledger.find, ["t0", "t1", "t4", "late"]) if entry] == [
        "t0",
        "t1",
        "t4",
        "late",
    ]
    assert late.arm.sequence == 6
    assert (ledger.index.waiters("t5"), ledger.index.note("n")) == ([("second", None)], b"not committed")
    known = {work.task_id: ledger.find(work.task_id) for work in (expired, untold)}
    assert [entry is not None and entry.work is not None for entry in known.values()] == [False, True]
    assert not list(tmp_path.glob("*.new*"))
    await ledger.close()
    assert disagreement(tmp_path / "index.sqlite", tmp_path) is None


async def test_an_index_that_can_not_be_built_again_is_tried_again(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path)
    await admitted(ledger, "t0")
    ledger.index.give_up(sqlite3.DatabaseError("database disk image is malformed"))
    ledger._index_path.unlink()
    ledger._index_path.mkdir()

    with pytest.raises(IndexUnusable):
        ledger.commit()
    assert ledger._rebuilding is not None
    await ledger._rebuilding
    ledger._index_path.rmdir()
    await rebuilt_aside(ledger)

    assert ledger.find("t0") is not None
    await ledger.close()


async def rebuilt_aside(ledger: Ledger) -> None:
    def whole_again() -> bool:
        with suppress(IndexUnusable):
            ledger.commit()
        return not ledger._index.broken

    await until(whole_again)


@pytest.mark.parametrize("forgotten_rows", ["counted", "of the version before"])
async def test_an_index_that_says_it_knows_what_it_does_not_is_found_and_built_again(
    tmp_path: Path, forgotten_rows: str
) -> None:
    ledger = await open_ledger(tmp_path)
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
    again = await open_ledger(tmp_path)

    assert again.next_sequence() == 30
    await again.close()
    assert rows(tmp_path / "index.sqlite") == before


async def test_a_settlement_that_the_index_lost_is_found(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path)
    work = await admitted(ledger, "t1")
    await ledger.settle(lines_of(work))
    await ledger.close()
    with sqlite3.connect(tmp_path / "index.sqlite") as db:
        db.execute("UPDATE tasks SET result = NULL, ended = NULL, logged = 0")

    assert "is open in it" in str(disagreement(tmp_path / "index.sqlite", tmp_path))


async def test_a_number_that_was_given_twice_is_quarantined_and_never_given_again(tmp_path: Path) -> None:
    ledger = await open_ledger(tmp_path)
    first = await admitted(ledger, "t1")
    twice = first.model_copy(update={"task_id": "t2"})
    await ledger.close()
    with (tmp_path / "assignments.jsonl").open("ab") as file:
        file.write(twice.encode() + b"\n")

    again = await open_ledger(tmp_path)

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
    index._db.execute(INSERT, (1, "other", 1.0, 0, None, None, 0, None, None, None))

    for _ in range(3):
        with pytest.raises(IndexUnusable):
            index.commit({"assignments": 20})

    again = TaskIndex(tmp_path / "index.sqlite")
    assert (again.position("assignments"), again.find("t1"), again.find("other")) == (10, None, None)
    again.close()
