"""The order of release, in simulated time."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.manager.order import SLOW, FairOrder, Lane, Waiting

AGEING_S = 30.0


class Backlog:
    """Jobs with tasks that wait; each turn releases some and lets time pass."""

    def __init__(self, *jobs: Waiting) -> None:
        self.order = FairOrder(AGEING_S)
        self.jobs = {job.job_id: job for job in jobs}
        self.now = 0.0

    def release(self, room: int, weights: dict[str, float] | None = None, seconds: float = 1.0) -> dict[str, int]:
        chosen = dict(self.order.choose(self.jobs.values(), room, weights or {}, self.now))
        for job_id, count in chosen.items():
            job = self.jobs[job_id]
            self.jobs[job_id] = job_after(job, count, self.now)
        self.now += seconds
        return chosen


def job_after(job: Waiting, count: int, now: float) -> Waiting:
    return Waiting(job.job_id, job.tenant, job.priority, now, job.tasks - count, job.samples)


def job(job_id: str, tenant: str = "a", priority: int = 1, tasks: int = 10**6, samples: int = 1) -> Waiting:
    return Waiting(job_id, tenant, priority, 0.0, tasks, samples)


def test_shares_follow_the_weights_beside_one_that_floods() -> None:
    # given three tenants of weights 1 : 2 : 4, one of them with a hundred jobs
    weights = {"one": 1.0, "two": 2.0, "four": 4.0}
    flood = [job(f"flood-{n}", "one", priority=10) for n in range(100)]
    backlog = Backlog(*flood, job("j2", "two"), job("j4", "four"))

    # when tasks are released for a minute, in rooms that fit no round
    released: Counter[str] = Counter()
    for _ in range(60):
        for job_id, count in backlog.release(5, weights).items():
            released[backlog.jobs[job_id].tenant] += count

    # then each has its share, within 5 %
    assert sum(released.values()) == 300
    for tenant, weight in weights.items():
        assert released[tenant] / 300 == pytest.approx(weight / 7, rel=0.05)


def test_shares_count_samples() -> None:
    backlog = Backlog(job("big", "a", samples=8), job("small", "b"))
    released = sum((Counter(backlog.release(9)) for _ in range(100)), Counter[str]())
    assert released["big"] * 8 == pytest.approx(released["small"], rel=0.05)


def test_a_higher_priority_goes_first() -> None:
    backlog = Backlog(job("low", tasks=50_000), job("high", priority=10, tasks=3))
    assert backlog.release(2) == {"high": 2}
    assert backlog.release(2) == {"high": 1, "low": 1}


def test_no_priority_waits_longer_than_its_bound() -> None:
    backlog = Backlog(job("low"), job("high", priority=10))
    turns = [backlog.now for _ in range(2000) if "low" in backlog.release(1)]
    gaps = [later - sooner for sooner, later in zip([0.0, *turns], turns, strict=False)]
    assert max(gaps) <= 9 * AGEING_S + 2
    assert min(gaps) >= 9 * AGEING_S - 1


def test_jobs_of_equal_priority_take_turns() -> None:
    backlog = Backlog(job("x"), job("y"))
    assert backlog.release(10) == {"x": 5, "y": 5}


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 10), st.integers(0, 20), st.integers(1, 64)), max_size=8),
    st.integers(0, 50),
)
def test_it_fills_the_room_and_never_more(rows: list[tuple[str, int, int, int]], room: int) -> None:
    jobs = [job(f"j{n}", *row) for n, row in enumerate(rows)]
    chosen = dict(FairOrder(AGEING_S).choose(jobs, room, {}, 0.0))
    assert sum(chosen.values()) == min(room, sum(one.tasks for one in jobs))
    assert all(count <= one.tasks for one in jobs if (count := chosen.get(one.job_id, 0)))


@pytest.mark.parametrize(("tasks_per_s", "window"), [(20, SLOW), (800, 800), (5_000, 1_024)])
def test_the_fleet_may_have_what_an_agent_ends_in_a_second_within_bounds(tasks_per_s: int, window: int) -> None:
    lane, in_fleet = Lane(AGEING_S, most=1_024), 0
    for turn in range(50):
        room = lane.room(in_fleet, now=turn / 10)
        lane.count_released(room)
        in_fleet = max(0, in_fleet + room - tasks_per_s // 10)
    assert in_fleet + tasks_per_s // 10 == pytest.approx(window, rel=0.15)

    # when the agent ends nothing any more, then no more than those of a slow one go out
    assert lane.room(in_fleet, now=10.0) == max(0, SLOW - in_fleet)


def test_a_clock_that_is_set_back_forgets_what_ended_before() -> None:
    lane = Lane(AGEING_S, most=1_024)
    lane.count_released(800)
    assert lane.room(0, now=3_600.0) == 800

    assert [lane.room(0, now=turn / 10) for turn in range(3)] == [SLOW] * 3
