"""The list of tasks over a large index: what a page costs does not grow with it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from schemas import Result
from services.orchestrator.ledger.index import TaskIndex
from services.orchestrator.tasks.task_list import MOST_SCANNED, StateFilter, TaskPage, task_page

TASKS = 100_000
OPEN_EVERY, FAILED_EVERY = 10_000, 20_000
PAGE_S = 0.25
"""Of this thread's work: what others do meanwhile does not count."""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of tasks of two agents: one in ten thousand is open, one in twenty thousand failed."""
    folder = tmp_path_factory.mktemp("logs")
    index = TaskIndex(folder / "index.sqlite")
    for sequence in range(TASKS):
        task_id, agent = f"t{sequence}", "rare" if sequence == 77 else "small"
        index.admit(sequence, task_id, 1e9, b'{"agent_id":"%b","input":"x","arm":{}}' % agent.encode(), sequence * 90)
        if sequence % OPEN_EVERY == 5:
            continue
        failed = sequence % FAILED_EVERY == 9
        result = Result(task_id=task_id, agent_id=agent, status="failed" if failed else "ok", reason="why")
        index.settle(task_id, logged=0 if failed else 2, result=result.encode(), lines=0, status=result.status)
    index.commit()
    index.close()
    return folder


def page(logs: Path, state: StateFilter | None = None, before: int | None = None, agent: str | None = None) -> TaskPage:
    return task_page(logs / "index.sqlite", logs, limit=50, before=before, state=state, agent_id=agent)


@pytest.mark.parametrize("state", [None, "closed", "ok"])
def test_a_page_deep_in_the_list_costs_no_more_than_the_first(logs: Path, state: StateFilter | None) -> None:
    for before in (None, TASKS // 2, 60):
        began = time.thread_time()
        items, following = page(logs, state, before)
        assert time.thread_time() - began < PAGE_S
        assert len(items) == 50
        assert items[0].sequence < (before or TASKS)
        assert following == items[-1].sequence


def test_the_few_open_and_failed_ones_are_found_at_once(logs: Path) -> None:
    began = time.thread_time()
    opened, _ = page(logs, "open")
    failed, _ = page(logs, "failed")

    assert time.thread_time() - began < PAGE_S
    assert [one.sequence for one in opened] == [at + 5 for at in range(TASKS - OPEN_EVERY, -1, -OPEN_EVERY)]
    assert [(one.sequence, one.state, one.reason) for one in failed] == [
        (at + 9, "failed", "why") for at in range(TASKS - FAILED_EVERY, -1, -FAILED_EVERY)
    ]
    assert page(logs, "expired") == ([], None)


def test_a_rare_agents_tasks_come_over_pages_that_each_look_at_a_bounded_part(logs: Path) -> None:
    looks, before, found = 0, None, list[int]()
    while True:
        items, before = page(logs, agent="rare", before=before)
        looks, found = looks + 1, found + [one.sequence for one in items]
        if before is None:
            break

    assert (found, looks) == ([77], TASKS // MOST_SCANNED)


def test_the_fleets_own_tasks_are_left_out_where_that_is_asked_for(tmp_path: Path) -> None:
    index = TaskIndex(tmp_path / "index.sqlite")
    for sequence, task_id in enumerate(("a", "golden/small/v1.0.1-1/v1.0.0/0.1/0", "anchor/x/0", "evaluation/x", "b")):
        index.admit(sequence, task_id, 1e9, b'{"agent_id":"small","input":"x","arm":{}}', sequence * 90)
    index.commit()
    index.close()

    users, following = task_page(tmp_path / "index.sqlite", tmp_path, limit=1, own=False)
    rest, _ = task_page(tmp_path / "index.sqlite", tmp_path, limit=5, before=following, state="open", own=False)

    assert [one.task_id for one in [*users, *rest]] == ["b", "a"]
    assert len(task_page(tmp_path / "index.sqlite", tmp_path, limit=9).items) == 5
