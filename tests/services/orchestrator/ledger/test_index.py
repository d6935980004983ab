"""What the index answers that the logs' tests do not ask."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from schemas import Task
from services.orchestrator.ledger.index import TaskIndex
from services.orchestrator.ledger.indexed_log import IndexUnusable
from tests.services.orchestrator.house import answered, house, scored
from tests.waiting import until


def test_the_oldest_open_work_is_that_assigned_first_whatever_the_deadlines(tmp_path: Path) -> None:
    index = TaskIndex(tmp_path / "index.sqlite")
    assert index.oldest_open_work() is None
    for sequence in range(3):
        index.admit(sequence, f"t{sequence}", deadline=100.0 - sequence, work=f"work {sequence}".encode())

    index.settle("t0", logged=1, result=b"{}")

    assert index.oldest_open_work() == b"work 1"
    index.close()


def test_what_a_later_leader_committed_to_an_index_an_earlier_one_can_t_commit_over(tmp_path: Path) -> None:
    older = TaskIndex(tmp_path / "index.sqlite", epoch=1)
    older.admit(0, "t0", deadline=1.0, work=b"work")
    older.commit({"assignments": 10})
    newer = TaskIndex(tmp_path / "index.sqlite", epoch=2)
    newer.commit({"assignments": 20})

    older.admit(1, "t1", deadline=1.0, work=b"work")
    with pytest.raises(IndexUnusable):
        older.commit({"assignments": 30})

    assert newer.position("assignments") == 20
    assert newer.find("t1") is None
    newer.close()


async def test_the_age_of_the_oldest_open_task_is_on_the_metrics_until_it_is_closed(tmp_path: Path) -> None:
    def age() -> float:
        return REGISTRY.get_sample_value("ratchet_oldest_open_task_seconds") or 0.0

    async with house(tmp_path) as fleet:
        started = time.monotonic()
        await fleet.submit(Task(task_id="t1", input="x"))
        (work,) = await fleet.work()
        await until(lambda: age() > 0)
        assert age() <= time.monotonic() - started

        await fleet.reward(scored(answered(work, "a"), 1.0))

        await until(lambda: age() == 0)
