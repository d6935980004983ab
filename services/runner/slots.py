"""Places for rollouts on this machine: so many at once, and no more than its memory holds.

High priority comes first, then who came first. One that does not fit holds up those behind it, so that it has its turn.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

CGROUP_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")


def memory_here_mb() -> int:
    """Return the memory of this machine, or of the container that this process is in."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # "max": there is no limit
            limits.append(int((Path("/sys/fs/cgroup") / name).read_text()))
    return min(limits) // 2**20


class NoTurn(Exception):
    """Others held all places until it was too late."""


class Slots:
    """`memory_mb`: of all rollouts at once. One that asks for more runs alone."""

    def __init__(self, places: int, memory_mb: float = math.inf) -> None:
        self._free = places
        self._memory_mb = self._free_mb = memory_mb
        self._waiting: list[tuple[int, int, float, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    @property
    def waiting(self) -> int:
        return sum(not turn.done() for *_, turn in self._waiting)

    @asynccontextmanager
    async def of(
        self, priority: int, within_s: float, called_off: asyncio.Event, needs_mb: float = 0
    ) -> AsyncIterator[None]:
        """Waits for a place, and holds it until this is left. Raises NoTurn where none was free within the seconds, or
        before it was called off."""
        needs_mb = min(needs_mb, self._memory_mb)
        try:
            async with asyncio.timeout(within_s):
                await self._take(priority, called_off, needs_mb)
        except TimeoutError:
            raise NoTurn from None
        try:
            yield
        finally:
            self._give_back(needs_mb)

    async def _take(self, priority: int, called_off: asyncio.Event, needs_mb: float) -> None:
        if called_off.is_set():
            raise NoTurn
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (-priority, next(self._numbers), needs_mb, turn))
        self._hand_out()
        if turn.done():
            return
        wish = asyncio.create_task(called_off.wait())
        has_turn = False
        try:
            await asyncio.wait((turn, wish), return_when=asyncio.FIRST_COMPLETED)
            has_turn = turn.done()
        finally:
            wish.cancel()
            if not has_turn:
                if turn.cancel():
                    self._hand_out()
                else:
                    self._give_back(needs_mb)
        if not has_turn:
            raise NoTurn

    def _give_back(self, mb: float) -> None:
        self._free += 1
        self._free_mb += mb
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting:
            _, _, needs_mb, turn = self._waiting[0]
            if not turn.done():
                if not self._free or needs_mb > self._free_mb:
                    return
                self._free -= 1
                self._free_mb -= needs_mb
                turn.set_result(None)
            heapq.heappop(self._waiting)
