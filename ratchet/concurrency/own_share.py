"""The share of an engine, or of a runner, that the fleet's own tasks get while users' tasks fill it.

Own tasks are those of the gate and of `ratchet eval`. They travel with a high priority, so they wait behind no backlog;
this holds them to their share. Where users' samples take less than half of the room, own tasks begin at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

LULL_S = 0.2
"""Between two batches, users' tasks in hand may be few although more wait at the broker."""


class OwnShare:
    """One process's. Counts in samples."""

    def __init__(self, share: float, room: int) -> None:
        """`share`: of all samples, between 0 and 1. `room`: samples that are made at once."""
        self._per_sample = share / (1.0 - share)
        self._room = room
        self._users = 0
        """Samples of users' tasks that are in hand."""
        self._crowded_at = float("-inf")
        self._earned = 0.0
        """Own samples that users' samples have paid for while own tasks waited."""
        self._first_in_line = asyncio.Lock()
        self._earned_more = asyncio.Event()

    @asynccontextmanager
    async def turn(self, samples: int, *, own: bool, within_s: float) -> AsyncIterator[None]:
        """Hold it while the samples are made. An own task waits for its turn, at most `within_s` seconds."""
        if own:
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s), self._first_in_line:
                    await self._wait_until_earned(samples)
            yield
            return
        self._users += samples
        try:
            yield
        finally:
            self._note_crowd()
            self._users -= samples
            if self._first_in_line.locked():
                self._earned += samples * self._per_sample
                self._earned_more.set()

    async def _wait_until_earned(self, samples: int) -> None:
        while self._earned < samples and self._is_crowded():
            self._earned_more.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(LULL_S):
                    await self._earned_more.wait()
        self._earned = max(0.0, self._earned - samples)

    def _is_crowded(self) -> bool:
        self._note_crowd()
        return time.monotonic() - self._crowded_at < LULL_S

    def _note_crowd(self) -> None:
        if 2 * self._users > self._room:
            self._crowded_at = time.monotonic()
