"""Chooses the segment of the logs that goes next, if any, and says what keeps it. Pure, but for a look into the segment
itself.

Segments go from the beginning of their log only, and never the newest (it says where the active file begins). A segment
of interactions goes after the assignments of all its tasks: those would look like open tasks without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple, Self

from ratchet.logs.names import ASSIGNMENTS, INTERACTIONS
from ratchet.logs.retention.needs import Needs
from ratchet.logs.segments import Segment

STEP = timedelta(seconds=5)
"""A wall clock that gains or loses more than this between two readings was set."""
SETTLING_S = 600.0
PRESSED = 2
"""The multiple of the bound at which a training that was not asked for yet no longer keeps its window."""


@dataclass(frozen=True, slots=True)
class Bound:
    """0 is no bound. `keep_bytes`: of both logs together, as they lie on disk."""

    keep_bytes: int
    keep_for: timedelta = timedelta()

    @classmethod
    def of(cls, gigabytes: float, days: float) -> Bound:
        return cls(int(gigabytes * 1e9), timedelta(days=days))

    def __bool__(self) -> bool:
        return bool(self.keep_bytes or self.keep_for)


class Instant(NamedTuple):
    """The two clocks at the same moment: the one that can be set, and the one that only goes on, in seconds."""

    wall: datetime
    monotonic: float


@dataclass(frozen=True, slots=True)
class AgeClock:
    """The clock that the age of lines is counted by. The wall clock alone must never have logs removed: it may be set
    wrong.

    From the newest line there was at the start, time goes on as monotonic time does; it is never later than the wall
    clock says. In the first minutes after a start, and after the wall clock was set, there is no present. So a time in
    which no fleet was up counts only from the next start after new lines came.
    """

    newest: datetime
    started: float
    read: Instant
    steady_since: float

    @classmethod
    def start(cls, newest: datetime | None, at: Instant) -> Self:
        """`newest`: when the newest line in the logs was written; None where there is none."""
        return cls(newest or at.wall, at.monotonic, at, at.monotonic)

    def at(self, now: Instant) -> AgeClock:
        """The same, later."""
        passed = timedelta(seconds=now.monotonic - self.read.monotonic)
        was_set = abs(now.wall - self.read.wall - passed) > STEP
        return replace(self, read=now, steady_since=now.monotonic if was_set else self.steady_since)

    @property
    def present(self) -> datetime | None:
        """None: nothing is too old now."""
        if self.read.monotonic - self.steady_since < SETTLING_S:
            return None
        return min(self.read.wall, self.newest + timedelta(seconds=self.read.monotonic - self.started))


@dataclass(frozen=True, slots=True)
class Part:
    """A sealed segment; `disk_bytes` as it lies there. All its lines were written from `first_at` to `last_at`."""

    segment: Segment
    disk_bytes: int
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Removal:
    """This one goes, and with it what is known of tasks whose number is below `sequence`."""

    part: Part
    sequence: int


@dataclass(frozen=True, slots=True)
class Held:
    """This one would go, but is needed."""

    part: Part
    why: str


@dataclass(frozen=True, slots=True)
class Planner:
    """`last` looks into a segment for the highest number of a task in it."""

    bound: Bound
    needs: Needs
    last: Callable[[Segment], int]

    def next(
        self, parts: Mapping[str, Sequence[Part]], disk_bytes: int, sequence: int, present: datetime | None
    ) -> Removal | Held | None:
        """`parts`: what may go at all, by log, the oldest first. `sequence`: tasks below it are removed already.

        `present`: what ages are counted from (AgeClock); None where nothing is too old.
        """
        oldest = sorted((of_log[0] for of_log in parts.values() if of_log), key=lambda part: part.first_at)
        if not oldest or not self._is_due(oldest[0], disk_bytes, present):
            return None
        part = oldest[0]
        pressed = bool(self.bound.keep_bytes) and disk_bytes > PRESSED * self.bound.keep_bytes
        if part.segment.name == INTERACTIONS and self.last(part.segment) >= sequence:
            assignments = parts.get(ASSIGNMENTS)
            if not assignments:
                return Held(part, "the assignments of its tasks are not in a segment of their own yet")
            part = assignments[0]
        return self._judge(part, sequence, pressed=pressed)

    def _is_due(self, part: Part, disk_bytes: int, present: datetime | None) -> bool:
        too_much = bool(self.bound.keep_bytes) and disk_bytes > self.bound.keep_bytes
        if too_much or not self.bound.keep_for or present is None:
            return too_much
        return present - part.last_at > self.bound.keep_for

    def _judge(self, part: Part, sequence: int, *, pressed: bool) -> Removal | Held:
        if not part.segment.compressed:
            return Held(part, "it is not compressed yet")
        if (why := self.needs.against(part.segment, pressed=pressed)) is not None:
            return Held(part, why)
        if part.segment.name == INTERACTIONS:
            return Removal(part, sequence)
        last = self.last(part.segment)
        first_open = self.needs.first_open
        if first_open is not None and last >= first_open:
            return Held(part, f"task number {first_open} is open, or its user is not told yet")
        return Removal(part, max(sequence, last + 1))
