"""A wall clock that is set, and set back, must not make a task late, whoever looks when."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from ratchet.service.deadline_time import DeadlineTime

NOON = datetime(2026, 1, 15, 12, tzinfo=UTC)
YEAR = timedelta(days=365)
MINUTE = timedelta(minutes=1)


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0
        self.set_by = timedelta(0)

    def __call__(self) -> datetime:
        return NOON + self.set_by + timedelta(seconds=self.seconds)

    def wall(self) -> float:
        return self().timestamp()


async def test_a_task_that_was_admitted_while_the_clock_was_wrong_is_not_late_once_it_is_right() -> None:
    clock = Clock()
    time = DeadlineTime(clock.wall, lambda: clock.seconds)
    time.start()
    await asyncio.sleep(0)

    clock.set_by = -YEAR
    admitted_at = clock()
    await asyncio.sleep(0.3)  # real time: no task comes meanwhile, the watch alone sees it
    clock.set_by = timedelta(0)
    clock.seconds = 2.0

    assert time.left_s(admitted_at + MINUTE, admitted_at) == 58.0
    time.stop()


def test_a_setting_that_nobody_saw_makes_no_task_late_that_came_after_one_in_time() -> None:
    clock = Clock()
    time = DeadlineTime(clock.wall, lambda: clock.seconds)
    before = clock()
    clock.seconds = 1.0
    assert time.left_s(before + MINUTE, before, 7) == 59.0

    clock.set_by = -YEAR
    admitted_at = clock()
    clock.set_by = timedelta(0)
    clock.seconds = 2.0

    assert time.left_s(admitted_at + MINUTE, admitted_at, 8) == 58.0
    clock.seconds = 61.0
    assert time.left_s(admitted_at + MINUTE, admitted_at, 8) == -1.0
    assert time.left_s(admitted_at + MINUTE, admitted_at, 6) < 0, "it was admitted before, so it may be older"


def test_what_is_late_by_every_setting_of_the_clock_is_late() -> None:
    clock = Clock()
    time = DeadlineTime(clock.wall, lambda: clock.seconds)
    admitted_at = clock()
    clock.set_by = YEAR
    clock.seconds = 61.0

    assert time.left_s(admitted_at + MINUTE, admitted_at) == -1.0
