"""Tracks what a process has in hand: how many bytes that may be, and whether it gets on with them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

EXPANSION, FEWEST, PER_OBJECT = 128, 24, 2
"""Bytes in memory for a byte of a message being handled. At most: a Reward of 1 MB with 64 samples takes 113 MiB, for
the log's line of each sample repeats the input. At least: a byte of numbers takes ten. And for each object in it."""
HANDLED_BYTES = 256 * 1024**2
"""Bytes of the messages that a process handles at once; one of each queue is handled however large it is."""
DELIVERED_BYTES = 64 * 1024**2
"""Bytes of bodies delivered from one queue and not settled; beyond it no more are asked for."""

STALLED_AFTER_S = 30.0
"""Work in hand, and none of it settled for so long, is a trouble."""
PAUSED_AFTER_S = 5.0
"""So is work that waits for a broker or a disk."""


def weight(body: bytes) -> int:
    """Bytes of memory that handling it takes at most. Each sample is an object of JSON, which begins with a brace."""
    objects = len(body) - len(body.replace(b"{", b""))  # several times as fast as to count them
    return len(body) * min(EXPANSION, FEWEST + PER_OBJECT * objects)


class ByteBudget:
    """Shared by the consumers of a process. Each takes before it handles a message, and gives back after."""

    def __init__(self, most: int = HANDLED_BYTES) -> None:
        self._most = most
        self._taken = 0
        self._waiting: dict[object, Callable[[], None]] = {}

    def take(self, weight: int, *, alone: bool) -> bool:
        """Take room for a message of this weight. `alone`: its consumer handles nothing else, so it need not wait."""
        if not alone and self._taken + weight > self._most:
            return False
        self._taken += weight
        return True

    def give_back(self, weight: int) -> None:
        self._taken -= weight
        if self._waiting:
            for begin in list(self._waiting.values()):
                begin()

    def wait(self, consumer: object, begin: Callable[[], None]) -> None:
        """Call `begin` whenever bytes are given back, until `leave`."""
        self._waiting[consumer] = begin

    def leave(self, consumer: object) -> None:
        self._waiting.pop(consumer, None)


def fitting_prefetch(most: int, size: int) -> int:
    """Return how many messages of about this size may be delivered, and at most so many."""
    return max(1, min(most, DELIVERED_BYTES // max(size, 1)))


@runtime_checkable
class Stepwise(Protocol):
    """A thing that may work for long before it settles anything, and shows that it does not hang."""

    def advanced_at(self) -> float:
        """Return when it last got a step further, by `time.monotonic`; NEVER where it did not yet.

        A step that ends by itself, as a call with a time limit does, may count as made until then.
        """


NEVER = float("-inf")


def never() -> float:
    return NEVER


class Progress:
    """The progress of one consumer. Times are seconds of `time.monotonic`."""

    def __init__(self, stalled_after_s: float | None, advanced_at: Callable[[], float] = never) -> None:
        """With `stalled_after_s` None, it may take as long as it takes.

        `advanced_at`: as in Stepwise, of what the handler waits for.
        """
        self._stalled_after_s = stalled_after_s
        self._advanced_at = advanced_at
        self._in_hand = 0
        self._since = 0.0
        self._paused: dict[object, tuple[float, str]] = {}

    def begin(self, now: float) -> None:
        if not self._in_hand:
            self._since = now
        self._in_hand += 1

    def end(self, now: float, *, settled: bool) -> None:
        self._in_hand -= 1
        if settled:
            self._since = now

    def pause(self, work: object, now: float, why: str) -> None:
        """Note that a piece of work waits for something that is nobody's fault. It may do so repeatedly."""
        began, _ = self._paused.get(work, (now, why))
        self._paused[work] = (began, why)
        self._since = now  # it does not hang

    def resume(self, work: object) -> None:
        self._paused.pop(work, None)

    def trouble(self, now: float) -> str | None:
        if self._paused:
            began, why = min(self._paused.values())
            if now - began > PAUSED_AFTER_S:
                return f"{len(self._paused)} in hand wait since {now - began:.0f} s: {why}"
            return None
        return self.stall_reason(now)

    def stall_reason(self, now: float) -> str | None:
        """Return why it counts as stalled: there is work in hand, and none of it gets on."""
        idle_s = now - max(self._since, self._advanced_at())
        if not self._in_hand or self._stalled_after_s is None or idle_s <= self._stalled_after_s:
            return None
        return f"no progress: {self._in_hand} in hand, and none of them settled for {idle_s:.0f} s"
