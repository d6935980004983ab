"""Places for rollouts on this machine: so many at once, and no more than its memory and its cores hold.

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
from typing import NamedTuple

CGROUP_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")


def memory_here_mb() -> int:
    """Return the memory of this machine, or of the container that this process is in."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # "max": there is no limit
            limits.append(int((Path("/sys/fs/cgroup") / name).read_text()))
    return min(limits) // 2**20


def cpus_here() -> float:
    """Return the cores that this process may use: those of the machine, or what its container is limited to."""
    cores = float(len(os.sched_getaffinity(0)))
    with suppress(OSError, ValueError):  # "max": there is no limit
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, int(quota) / int(period))
    return cores


class Needs(NamedTuple):
    """The resources that a rollout has to itself while it runs."""

    memory_mb: float = 0.0
    cpus: float = 0.0

    def within(self, other: Needs) -> bool:
        return self.memory_mb <= other.memory_mb and self.cpus <= other.cpus + ROUNDING


ROUNDING = 1e-9
"""Cores come in fractions, whose sums are not exact."""


class NoTurn(Exception):
    """Others held all places until it was too late."""


NOTHING = Needs()


class Slots:
    """`memory_mb`, `cpus`: of all rollouts at once. One that asks for more has all there is."""

    def __init__(self, places: int, memory_mb: float = math.inf, cpus: float = math.inf) -> None:
        self._free = places
        self._most = self._left = Needs(memory_mb, cpus)
        self._waiting: list[tuple[int, int, Needs, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    @property
    def waiting(self) -> int:
        return sum(not turn.done() for *_, turn in self._waiting)

    @asynccontextmanager
    async def of(
        self, priority: int, within_s: float, called_off: asyncio.Event, asked: Needs = NOTHING
    ) -> AsyncIterator[None]:
        """Waits for a place, and holds it until this is left. Raises NoTurn where none was free within the seconds, or
        before it was called off."""
        needs = Needs(*map(min, asked, self._most))
        try:
            async with asyncio.timeout(within_s):
                await self._take(priority, called_off, needs)
        except TimeoutError:
            raise NoTurn from None
        try:
            yield
        finally:
            self._give_back(needs)

    async def _take(self, priority: int, called_off: asyncio.Event, needs: Needs) -> None:
        if called_off.is_set():
            raise NoTurn
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (-priority, next(self._numbers), needs, turn))
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
                    self._give_back(needs)
        if not has_turn:
            raise NoTurn

    def _give_back(self, needs: Needs) -> None:
        self._free += 1
        self._left = Needs(self._left.memory_mb + needs.memory_mb, self._left.cpus + needs.cpus)
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting:
            _, _, needs, turn = self._waiting[0]
            if not turn.done():
                if not self._free or not needs.within(self._left):
                    return
                self._free -= 1
                self._left = Needs(self._left.memory_mb - needs.memory_mb, self._left.cpus - needs.cpus)
                turn.set_result(None)
            heapq.heappop(self._waiting)
