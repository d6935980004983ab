"""Deadlines run on steady time: a wall clock that is set ends no task and keeps none alive, within a process or not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ratchet.service.errors import Reject
from schemas import Task
from schemas.messages.work import Sampling
from services.orchestrator.orchestrator import SWEEP_EVERY_S
from services.orchestrator.tasks.admission import AdmissionPolicy
from services.orchestrator.tasks.deadline_clock import DeadlineClock
from tests.services.orchestrator.house import PACE, answered, house, scored
from tests.waiting import settled, until

DAY_S, YEAR_S = 86_400.0, 365 * 86_400.0
STEPS = [DAY_S, -DAY_S, YEAR_S, -YEAR_S]
START = datetime(2026, 1, 1, tzinfo=UTC)

SWEEPS_S = 2.5 * SWEEP_EVERY_S * PACE


class World:
    """A wall clock that can be set, and steady time that can't."""

    def __init__(self) -> None:
        self.steady = 1_000.0
        self.set_by = 0.0
        self.sequence = 0

    def wall(self) -> datetime:
        return START + timedelta(seconds=self.steady + self.set_by)

    def clock(self, note: bytes | None = None, *, boot: str = "b1", newest: datetime | None = None) -> DeadlineClock:
        clock = DeadlineClock(self.wall, lambda: self.steady, lambda: self.sequence, boot=boot)
        clock.start(note, newest)
        return clock

    def admit(self, clock: DeadlineClock, seconds: float) -> tuple[int, float]:
        """The number of a task, and its deadline as the index has it."""
        deadline = clock.now().timestamp() + seconds
        self.sequence += 1
        return self.sequence - 1, deadline


def is_over(clock: DeadlineClock, task: tuple[int, float]) -> bool:
    number, deadline = task
    (time,) = [time for numbers, time in clock.times() if number in numbers]
    return deadline < time


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("boot", "counted"), [("b1", 100.0), ("b2", 60.0)])
def test_even_seconds_go_on_over_a_restart_and_know_no_wall_clock(step: float, boot: str, counted: float) -> None:
    world = World()
    first = world.clock()
    began = first.even()
    world.steady += 60
    world.set_by += step
    note = first.note()
    world.steady += 40
    if boot == "b2":
        world.steady = 5.0

    again = world.clock(note, boot=boot)

    assert again.even() - began == pytest.approx(counted)
    world.steady += 7
    assert again.even() - began == pytest.approx(counted + 7)


def test_a_note_of_an_earlier_version_counts_from_nought() -> None:
    world = World()
    clock = world.clock(b'{"boot":"b1","steady_s":900.0,"epochs":[{"first_sequence":0,"ahead_s":7.0}]}')

    assert clock.even() == pytest.approx(100.0)


@pytest.mark.parametrize("step", STEPS)
def test_a_step_of_the_wall_clock_moves_no_deadline(step: float) -> None:
    world = World()
    clock = world.clock()
    before = world.admit(clock, 60)
    world.set_by += step
    after = world.admit(clock, 60)
    world.steady += 59

    assert not is_over(clock, before)
    assert not is_over(clock, after)
    world.steady += 2
    assert is_over(clock, before)
    assert is_over(clock, after)


@pytest.mark.parametrize("step", STEPS)
def test_on_the_same_boot_the_time_away_counts_as_it_was_whatever_the_wall_clock_says(step: float) -> None:
    world = World()
    first = world.clock()
    short, long = world.admit(first, 60), world.admit(first, 3_600)
    note = first.note()
    world.steady += 100
    world.set_by += step

    second = world.clock(note)

    assert is_over(second, short)
    assert not is_over(second, long)
    new = world.admit(second, 60)
    assert not is_over(second, new)
    world.steady += 3_501
    assert is_over(second, long)


@pytest.mark.parametrize("step", [0.0, *STEPS])
def test_on_another_boot_a_task_keeps_what_it_had_left(step: float) -> None:
    world = World()
    first = world.clock()
    task = world.admit(first, 60)
    world.steady += 20
    note = first.note()
    world.steady, world.set_by = 5.0, 7_200.0 + step  # the machine was started anew, two hours later by its clock

    second = world.clock(note, boot="b2")

    world.steady += 39
    assert not is_over(second, task)
    world.steady += 2
    assert is_over(second, task)


def test_without_a_note_the_time_since_the_newest_line_does_not_count() -> None:
    world = World()
    task = (0, world.wall().timestamp() + 60)
    newest, world.sequence, world.set_by = world.wall(), 1, YEAR_S

    clock = world.clock(newest=newest)

    assert not is_over(clock, task)
    world.steady += 61
    assert is_over(clock, task)


def test_steps_are_forgotten_once_the_tasks_before_them_are_closed() -> None:
    world = World()
    clock = world.clock()
    for _ in range(5):
        world.admit(clock, 60)
        world.set_by += DAY_S
    world.admit(clock, 60)
    assert len(list(clock.times())) == 6
    clock.forget_before(3)
    assert [numbers.start for numbers, _ in clock.times()] == [3, 4, 5]
    clock.forget_before(None)
    assert len(list(clock.times())) == 1


@pytest.mark.parametrize("step", STEPS)
async def test_a_clock_that_is_set_under_way_and_over_a_restart_expires_no_task(tmp_path: Path, step: float) -> None:
    world = {"set_by": 0.0}

    def wall() -> datetime:
        return datetime.now(UTC) + timedelta(seconds=world["set_by"])

    async with house(tmp_path, clock=wall) as fleet:
        for number in range(10):
            await fleet.submit(Task(task_id=f"t{number}", input="x"))
        works = await fleet.work(10)
        world["set_by"] = step
        await settled(SWEEPS_S)
        for work in works[:5]:
            await fleet.reward(scored(answered(work, "a"), 1.0))
        await fleet.results(5)
    world["set_by"] = -step
    async with house(tmp_path, clock=wall) as fleet:
        await settled(SWEEPS_S)
        for work in works[5:]:
            await fleet.reward(scored(answered(work, "a"), 1.0))

        assert {result.status for result in await fleet.results(5)} == {"ok"}
        assert {line.status for line in fleet.logged()} == {"ok"}


async def test_a_deadline_too_far_ahead_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        far = datetime.now(UTC) + timedelta(days=8)
        await fleet.submit(Task(task_id="t1", input="x", deadline=far))

        (why,) = await fleet.dead_letters()
        (result,) = await fleet.results()

        assert "RATCHET_LONGEST_DEADLINE_S" in why
        assert result.status == "failed"
        await until(lambda: fleet.orchestrator.ledger.sequence == 0)


def test_the_bound_is_a_setting() -> None:
    policy = AdmissionPolicy(("small",), Sampling(), timedelta(hours=1), timedelta(hours=2))
    policy.check_deadline(Task(task_id="t", input="x", deadline=START + timedelta(hours=2)), START)
    with pytest.raises(Reject, match="7,200 s ahead"):
        policy.check_deadline(Task(task_id="t", input="x", deadline=START + timedelta(hours=2, seconds=1)), START)
