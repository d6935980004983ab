"""Which of many jobs are read for a release: those that may have a turn now."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pytest
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import StaticPool

from ratchet.http.access.roles import LOCAL
from ratchet.service.prices import AgentPrices
from schemas.api.jobs import JobSubmission, TenantQuota
from schemas.messages.result import Result
from services.manager import job_store
from services.manager.limits import set_quota
from services.manager.order import Lanes
from services.manager.release import release, store
from services.manager.tables import METADATA

NOW = 1_000_000.0
AGEING_S = 30.0
WINDOW = 4


@pytest.fixture
def connection() -> Iterator[Connection]:
    with create_engine("sqlite://", poolclass=StaticPool).connect() as opened:
        METADATA.create_all(opened)
        yield opened


def submit(connection: Connection, job_id: str, *, agent: str = "small", tenant: str = "a", **given: object) -> None:
    at = float(given.pop("at", NOW))  # type: ignore[arg-type]
    asked = JobSubmission.model_validate({"job_id": job_id, "tasks": ["x"], "samples": 1, **given})
    job_store.submit(connection, asked, agent, tenant, LOCAL, None, at, at + 86_400)


def released(connection: Connection, lanes: Lanes, now: float = NOW) -> list[str]:
    found = release(connection, lanes, {}, now)
    return [one.task_id for one in found]  # type: ignore[union-attr]


def test_of_many_jobs_the_highest_priorities_and_the_longest_waits_go_first(connection: Connection) -> None:
    # given a hundred jobs that an order by names would begin with, three of a higher priority, and one of the lowest
    # that waits for ten steps
    for number in range(100):
        submit(connection, f"a-low-{number}", priority=2)
    for number in range(3):
        submit(connection, f"high-{number}", priority=9)
    submit(connection, "old", priority=1, at=NOW - 10 * AGEING_S)

    assert sorted(released(connection, Lanes(AGEING_S, WINDOW))) == ["high-0/0", "high-1/0", "high-2/0", "old/0"]


def test_the_tasks_of_one_release_go_by_priority(connection: Connection) -> None:
    submit(connection, "a-low", priority=2, tasks=["x"] * 3)
    submit(connection, "high", priority=9, tasks=["x"] * 3)

    assert released(connection, Lanes(AGEING_S, WINDOW)) == ["high/0", "high/1", "high/2", "a-low/0"]


def test_a_window_that_is_full_holds_up_no_other_and_each_tenant_has_its_share(connection: Connection) -> None:
    # given two tenants with more jobs than a window takes, and a job of another agent
    lanes = Lanes(AGEING_S, WINDOW)
    for number in range(20):
        submit(connection, f"a-{number}")
    submit(connection, "b", tenant="b")
    first = released(connection, lanes)
    assert len(first) == WINDOW
    assert "b/0" in first

    # then while it is full only the other agent's job goes out, and what ends makes room
    submit(connection, "other", agent="coder")
    assert released(connection, lanes) == ["other/0"]
    store(connection, [Result(task_id=first[0], response="a")], NOW)
    assert len(released(connection, lanes)) == 1


def test_tasks_that_run_again_do_not_count_as_ended_in_the_last_minute(connection: Connection) -> None:
    submit(connection, "j")
    (task_id,) = released(connection, Lanes(AGEING_S, WINDOW))
    store(connection, [Result(task_id=task_id, status="failed", reason="no")], NOW)
    assert job_store.get(connection, "j", LOCAL, NOW).ended_last_minute == 1

    job_store.rerun(connection, "j", NOW + 3_600, NOW + 86_400)

    assert job_store.get(connection, "j", LOCAL, NOW + 3_600).ended_last_minute == 0


def test_room_of_a_job_that_waits_for_its_money_is_anothers(connection: Connection) -> None:
    prices = {"small": AgentPrices(prompt=Decimal(0), sampled=Decimal(1), samples=1, max_tokens=10)}
    asked = {"job_id": "x", "tasks": ["x"] * 9, "priority": 10, "budget": "0.00002"}
    job_store.submit(
        connection, JobSubmission.model_validate(asked), "small", "a", LOCAL, prices["small"], NOW, NOW + 86_400
    )
    submit(connection, "y", priority=1, tasks=["y"] * 9)

    found = release(connection, Lanes(AGEING_S, WINDOW), prices, NOW)

    assert [one.task_id for one in found] == ["x/0", "x/1", "y/0", "y/1"]  # type: ignore[union-attr]


def test_a_share_holds_where_there_is_room_for_one_task_at_a_time(connection: Connection) -> None:
    lanes = Lanes(AGEING_S, 1)
    set_quota(connection, "a", TenantQuota(weight=3), NOW)
    for tenant in "ab":
        submit(connection, tenant, tenant=tenant, tasks=["x"] * 9)

    order = ""
    for _ in range(8):
        (task_id,) = released(connection, lanes)
        order += task_id[0]
        store(connection, [Result(task_id=task_id, response="x")], NOW)

    assert order == "aaabaaab"
