"""Which answers come too late to be worth a judge's time: their users are told before, or are told they expired. Pure.

A scorer that is slower than its queue grows works at the queue's head, where every answer is about to expire. Asked
about each, the judge would be busy with answers nobody waits for; those are passed over, and the rest come in time.
"""

from __future__ import annotations

WEIGHT = 1 / 16
"""Of the newest scoring in the expected time."""
FORGET = 0.98
"""What each answer that is passed over leaves of the expected time: so a slow moment ends by itself."""
MARGIN = 1.25
SETTLED_S = 0.5
"""From a score to the word to the user."""

TOO_LATE = "expired before it was scored: its deadline had passed, or would have before a score"


class Lateness:
    """Learns how long scoring takes at the moment, waiting for a free judge included."""

    def __init__(self) -> None:
        self._expected_s = 0.0

    def observe(self, took_s: float) -> None:
        self._expected_s += (took_s - self._expected_s) * WEIGHT

    def too_late(self, left_s: float) -> bool:
        """With so many seconds to the deadline. Each yes makes the next less likely."""
        late = left_s <= 0 or left_s < self._expected_s * MARGIN + (SETTLED_S if self._expected_s else 0)
        if late:
            self._expected_s *= FORGET
        return late
