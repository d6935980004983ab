"""Which answers come too late to be worth a judge's time: their users are told before, or are told they expired. Pure.

A scorer that is slower than its queue grows works at the queue's head, where every answer is about to expire. Asked
about each, the judge would be busy with answers nobody waits for; those are passed over, and the rest come in time.
"""

from __future__ import annotations

WEIGHT = 1 / 16
"""Of the newest scoring in the expected time."""
MARGIN = 1.25
SETTLED_S = 0.5
"""From a score to the word to the user."""

TOO_LATE = "expired before it was scored: its deadline had passed, or would have before a score"


class Lateness:
    """Learns how long scoring takes at the moment, waiting for a free judge included."""

    def __init__(self) -> None:
        self._in_hand = 0
        self._took_s = 0.0
        self._each_s = 0.0
        """The same over the number in hand when it began: what one in hand costs the next."""

    def begin(self) -> int:
        """An answer goes to the judge. Returns how many are there now."""
        self._in_hand += 1
        return self._in_hand

    def end(self, took_s: float, in_hand: int) -> None:
        """It came back, with a score or without; `in_hand` is what `begin` said."""
        self._in_hand -= 1
        self._took_s += (took_s - self._took_s) * WEIGHT
        self._each_s += (took_s / in_hand - self._each_s) * WEIGHT

    def too_late(self, left_s: float) -> bool:
        """With so many seconds to the deadline. A judge with nothing to do is asked as long as there is any time."""
        if not self._in_hand:
            return left_s <= 0
        return left_s <= SETTLED_S + MARGIN * min(2 * self._took_s, (self._in_hand + 1) * self._each_s)
