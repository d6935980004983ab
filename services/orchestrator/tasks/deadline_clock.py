"""When a task's time is up, by a clock that does not jump. Pure but for the two clocks that are given in.

A deadline is a time of the wall clock, as it was when the task was admitted. From then on only steady time counts: a
wall clock that is set, by seconds or by a year, ends no task and keeps none alive. Each step of it begins an *epoch*,
known by the number of the first task that was admitted in it.

Across restarts (docs/decisions/0025): on the same boot of the same machine steady time goes on, so nothing is guessed.
On another boot or machine, the time in which no orchestrator ran does not count: a task keeps what it had left. Where
nothing was noted, the time from the newest line of the logs on does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from ratchet.logs.leadership import this_boot
from ratchet.service.deadline_time import STEP_S
from ratchet.service.telemetry import Log
from services.orchestrator.ledger.index import Entry, TaskIndex

NO_END = 1 << 62

log = Log("deadlines")


class Epoch(msgspec.Struct):
    """Tasks from a number on, and the seconds by which their wall clock is ahead of steady time."""

    first_sequence: int
    ahead_s: float


class DeadlineNote(msgspec.Struct):
    """The state that the next orchestrator needs to know."""

    boot: str
    steady_s: float
    epochs: list[Epoch]
    even_s: float = 0.0


@dataclass(eq=False)
class DeadlineClock:
    """`start` it before it is asked."""

    clock: Callable[[], datetime]
    seconds: Callable[[], float]
    next_sequence: Callable[[], int]
    boot: str = field(default_factory=this_boot)

    def __post_init__(self) -> None:
        self._epochs: list[Epoch] = []
        self._even_ahead_s = 0.0

    def start(self, note: bytes | None, newest_line: datetime | None) -> None:
        """`newest_line`: when the newest line of the logs was written, by the wall clock of that time."""
        self._epochs = self._taken_up(note) or [Epoch(0, self._unknown(newest_line) - self.seconds())]
        self.now()

    def even(self) -> float:
        """Seconds that go on evenly over restarts, whatever the wall clock does: of one boot all that passed, and of
        others those in which an orchestrator was there. They begin anew where the note is lost.
        """
        return self.seconds() + self._even_ahead_s

    def now(self) -> datetime:
        """Return what the wall clock shows, for a task that gets its number next."""
        now, steady = self.clock(), self.seconds()
        ahead_s = now.timestamp() - steady
        if abs(ahead_s - self._epochs[-1].ahead_s) > STEP_S:
            jump = ahead_s - self._epochs[-1].ahead_s
            log.warning("clock-set", f"the wall clock was set by {jump:+,.0f} s: no deadline moves with it")
            self._epochs = [epoch for epoch in self._epochs if epoch.first_sequence < self.next_sequence()]
            self._epochs.append(Epoch(self.next_sequence(), ahead_s))
        return now

    def times(self) -> Iterator[tuple[range, float]]:
        """Numbers of tasks, and the time by which their deadlines are judged, in seconds since 1970."""
        self.now()
        ends = [epoch.first_sequence for epoch in self._epochs[1:]] + [NO_END]
        for epoch, end in zip(self._epochs, ends, strict=True):
            yield range(epoch.first_sequence, end), self.seconds() + epoch.ahead_s

    def overdue(self, index: TaskIndex, limit: int) -> list[Entry]:
        """Return open tasks whose time is up, at most so many of each epoch."""
        if len(self._epochs) > 1:
            self.forget_before(index.first_open())
        return [entry for numbers, time in self.times() for entry in index.overdue(time, limit, numbers)]

    def forget_before(self, first_open: int | None) -> None:
        """All tasks with a lower number are closed; None: all tasks are."""
        open_from = NO_END if first_open is None else first_open
        while len(self._epochs) > 1 and self._epochs[1].first_sequence <= open_from:
            del self._epochs[0]

    def note(self) -> bytes:
        return msgspec.json.encode(DeadlineNote(self.boot, self.seconds(), self._epochs, self.even()))

    def _taken_up(self, note: bytes | None) -> list[Epoch]:
        self._even_ahead_s = -self.seconds()
        try:
            before = msgspec.json.decode(note or b"", type=DeadlineNote)
        except msgspec.DecodeError:
            return []
        self._even_ahead_s += before.even_s
        if before.boot and before.boot == self.boot and before.steady_s <= self.seconds():
            self._even_ahead_s = before.even_s - before.steady_s
            return before.epochs
        passed = before.steady_s - self.seconds()
        return [Epoch(epoch.first_sequence, epoch.ahead_s + passed) for epoch in before.epochs]

    def _unknown(self, newest_line: datetime | None) -> float:
        now = self.clock().timestamp()
        return now if newest_line is None else min(now, newest_line.timestamp())
