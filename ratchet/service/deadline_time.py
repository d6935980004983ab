"""Tells the time to a deadline. A wall clock that is set must not make work that is in time look late."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from datetime import datetime
from time import monotonic, time

from schemas.messages.work import Work

STEP_S = 5.0
"""A wall clock that is off by more, against steady time, was set."""
MOST_STEPS = 32
WATCH_EVERY_S = 0.25
MARGIN = 0.1
LARGEST_MARGIN_S = 60.0
"""Most seconds before the deadline that are left for scoring."""


def time_within(left_s: float, limit_s: float | None) -> float:
    """Return the seconds that work may take, at most `limit_s`, so that what it has by then can still be scored."""
    within = max(0.0, left_s - min(LARGEST_MARGIN_S, MARGIN * left_s))
    return within if limit_s is None else min(within, limit_s)


class DeadlineTime:
    """Counts a task's time from its admission, by the wall clock as it was set then, of all settings seen so far.

    A setting that lasts a moment may be missed. So no task counts as older than one that was admitted before it.
    Left out: tasks that were admitted under a setting before this process saw any task. Whoever admits tasks has the
    last word (services/orchestrator/tasks/deadline_clock.py); what is done too late costs time, what is dropped an
    answer.
    """

    def __init__(self, wall: Callable[[], float] = time, seconds: Callable[[], float] = monotonic) -> None:
        """`wall`: seconds since 1970."""
        self._wall = wall
        self._seconds = seconds
        self._ahead = deque([wall() - seconds()], MOST_STEPS)
        self._newest = 0
        self._admitted = -math.inf
        """Steady time at which the task with the highest number seen was admitted at the earliest."""
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Watch until `stop` how the clock is set, while no task comes too."""
        self._watching = asyncio.create_task(self._watch())

    def stop(self) -> None:
        """Harmless if it was not started."""
        if self._watching is not None:
            self._watching.cancel()

    def left_s(self, deadline: datetime, admitted_at: datetime, sequence: int | None = None) -> float:
        """Seconds to the deadline, negative behind it: of the ages that the task may have the smallest counts.

        `sequence`: the task's number in the order of admission.
        """
        steady = self._observe()
        admitted = admitted_at.timestamp()
        ages = [age for ahead in self._ahead if (age := steady + ahead - admitted) > -STEP_S]
        age = min(ages, default=0.0)
        if sequence is not None and sequence >= self._newest:
            self._newest, self._admitted = sequence, max(self._admitted, steady - age)
            age = steady - self._admitted
        return (deadline - admitted_at).total_seconds() - age

    def left_of(self, work: Work) -> float:
        """Return `left_s` of an admitted task."""
        return self.left_s(work.deadline, work.admitted_at, work.arm.sequence)

    async def _watch(self) -> None:
        while True:
            self._observe()
            await asyncio.sleep(WATCH_EVERY_S)

    def _observe(self) -> float:
        """Returns steady time."""
        steady = self._seconds()
        ahead = self._wall() - steady
        if abs(ahead - self._ahead[-1]) > STEP_S:
            self._ahead.append(ahead)
        return steady
