"""Ends a process that gets nowhere, so that its supervisor starts it again: the one rule, wherever it runs.

Two things are nowhere: work in hand that has been stalled (`Bus.stall_reason`) for so long, and an event loop that has
not turned for so long. For the first the process ends in order; a thread ends it where that does not come to an end,
and for the second. Nothing is lost: what was not settled goes back to its queue. A process that was frozen (SIGSTOP, a
paused machine) has not been nowhere for that time: only seconds in which it ran are counted.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

from ratchet.service.telemetry import Log

log = Log("service")

BEAT_S = 1.0
LONGEST_BEAT_S = 5.0
"""The most seconds between two beats that count as run time; in a longer gap the process did not run."""
TELL_S = 2.0
MARGIN_S = 5.0
"""An orderly end gets these seconds beyond the time that handlers have to finish."""


class Watchdog:
    """`beat` is called in the event loop, `look` beside it, both about every second. `limit_s` 0: it never bites."""

    def __init__(self, limit_s: float, grace_s: float, *, seconds: Callable[[], float] = time.monotonic) -> None:
        """`grace_s`: how long an orderly end may take."""
        self._limit_s = limit_s
        self._grace_s = grace_s
        self._seconds = seconds
        self._beat_at = self._looked_at = seconds()
        self._stalled_s = 0.0
        self._stands_s = 0.0
        """Return how long the loop has stood still, of the time in which this process ran."""
        self._ending_s: float | None = None

    def beat(self, stalled: str | None) -> str | None:
        """Return why the process has to end in order; None as long as it need not."""
        now = self._seconds()
        passed, self._beat_at = min(now - self._beat_at, LONGEST_BEAT_S), now
        self._stands_s = 0.0
        self._stalled_s = self._stalled_s + passed if stalled else 0.0
        if not stalled or not self._limit_s or self._stalled_s < self._limit_s:
            return None
        self._ending_s = 0.0
        return f"{stalled}; for {self._limit_s:g} s more nothing changed (RATCHET_RESTART_STALLED_S)"

    def look(self) -> str | None:
        """Return why the process has to end now, in whatever state it is."""
        now = self._seconds()
        passed, self._looked_at = min(now - self._looked_at, LONGEST_BEAT_S), now
        if self._ending_s is not None:
            self._ending_s += passed
            return "its orderly end came to no end" if self._ending_s > self._grace_s else None
        self._stands_s += passed
        if not self._limit_s or self._stands_s <= self._limit_s + BEAT_S:
            return None
        return f"its event loop has not turned for {self._stands_s:.0f} s (RATCHET_RESTART_STALLED_S)"


class WatchdogThread:
    """Looks, beside an event loop that may not turn, until it is closed."""

    def __init__(self, watchdog: Watchdog, leave: Callable[[int], None] = os._exit) -> None:
        self._watchdog = watchdog
        self._leave = leave
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def _watch(self) -> None:
        while not self._closed.wait(BEAT_S):
            if (why := self._watchdog.look()) is not None:
                telling = threading.Thread(target=_tell, args=(why,), daemon=True)
                telling.start()
                telling.join(TELL_S)  # whoever hangs may hold the log
                self._leave(1)
                return

    def close(self) -> None:
        self._closed.set()


def _tell(why: str) -> None:
    log.error("hung", f"this process gets nowhere: {why}. It ends, and what it has in hand goes back")
    sys.stdout.flush()
