"""Garbage in cycles of a process that has little to do: Python looks for it after so many allocations, however long
that takes. A service at 0.4 tasks a second held 7 MiB of it after twenty minutes, and looked as if it leaked.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

COLLECT_EVERY_S = 60.0


class IdleCollector:
    """Looks for garbage where Python itself has not for a minute; a process that is busy pays nothing."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._looks = _looks()
        self._since = seconds()

    def beat(self) -> None:
        """Call it every few seconds, at most."""
        now, looks = self._seconds(), _looks()
        if looks == self._looks and now - self._since < COLLECT_EVERY_S:
            return
        if looks == self._looks:
            gc.collect()
        self._looks, self._since = looks, now


def _looks() -> int:
    """Return how often Python has collected its youngest generation."""
    looks: int = gc.get_stats()[0]["collections"]
    return looks
