"""What the index says does not depend on what of it is written down already."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from services.orchestrator.ledger.index import OVERHEAD_BYTES, Entry, TaskIndex
from tests.quick import rounds

TASKS = 4
STEP = st.tuples(
    st.sampled_from(["admit", "answer", "fail", "forget", "commit"]), st.integers(min_value=0, max_value=TASKS - 1)
)


def entries(index: TaskIndex, steps: list[tuple[str, int]], *, written_at_once: bool) -> list[Entry | None]:
    for number, (step, task) in enumerate(steps):
        task_id = f"t{task}"
        known = index.find(task_id)
        if step == "admit" and known is None:
            index.admit(task, task_id, 100.0 + task, f"work {task}".encode(), task * 10)
        elif step == "answer" and known is not None:
            index.settle(task_id, logged=2, result=f"answer {number}".encode(), lines=number)
        elif step == "fail" and known is not None and known.logged == 0:
            index.settle(task_id, logged=0, result=f"failure {number}".encode(), lines=number, status="failed")
        elif step == "forget" and known is not None and known.result is not None:
            index.forget_work(task_id)
        if step == "commit" or written_at_once:
            index.commit()
    return [index.find(f"t{task}") for task in range(TASKS)]


@settings(max_examples=rounds(60))
@given(st.lists(STEP, max_size=12))
def test_young_tasks_and_written_ones_are_told_alike(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        young, written = TaskIndex(folder / "young.sqlite"), TaskIndex(folder / "written.sqlite")

        assert entries(young, steps, written_at_once=False) == entries(written, steps, written_at_once=True)

        for index in (young, written):
            index.commit()
            index.close()
        assert rows(folder / "young.sqlite") == rows(folder / "written.sqlite")


def rows(index: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(index)) as db:
        return db.execute("SELECT * FROM tasks ORDER BY sequence").fetchall()


def test_a_task_that_is_closed_before_it_is_written_is_written_once_and_without_its_work(tmp_path: Path) -> None:
    index = TaskIndex(tmp_path / "index.sqlite")
    statements: list[str] = []
    index.use(lambda db: db.set_trace_callback(statements.append))
    index.admit(0, "t0", 1.0, b"work")
    index.settle("t0", logged=1, result=b"result", lines=7)

    index.commit()

    assert sum(one.startswith(("INSERT INTO tasks", "UPDATE tasks")) for one in statements) == 1
    assert rows(tmp_path / "index.sqlite") == [(0, "t0", 1.0, 1, None, b"result", 0, 7, 0, None)]
    index.close()


def test_beyond_its_bytes_tasks_are_written_down_and_the_newest_open_ones_stay_in_memory(tmp_path: Path) -> None:
    index = TaskIndex(tmp_path / "index.sqlite")
    statements: list[str] = []
    for number in range(20):
        index.admit(number, f"t{number}", 1.0, bytes(2**20 - OVERHEAD_BYTES))
    index.commit()
    index.use(lambda db: db.set_trace_callback(statements.append))

    known = [index.find(f"t{number}") for number in range(20)]

    assert [entry.sequence for entry in known if entry] == list(range(20))
    assert len(statements) == 12
    index.close()


def test_the_index_writes_down_what_would_take_too_much_memory(tmp_path: Path) -> None:
    index = TaskIndex(tmp_path / "index.sqlite")
    works = [bytes([number]) * 2**20 for number in range(40)]
    for number, work in enumerate(works):
        index.admit(number, f"t{number}", 1.0, work, 0)

    assert [entry.work for number in range(40) if (entry := index.find(f"t{number}"))] == works
    index.close()
