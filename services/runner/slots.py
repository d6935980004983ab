"""Places for rollouts on this machine: so many at once, high priority first, then who came first."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class NoTurn(Exception):
    """Others held all places until it was too late."""


class Slots:
    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    @property
    def waiting(self) -> int:
        return sum(not turn.done() for _, _, turn in self._waiting)

    @asynccontextmanager
    async def of(self, priority: int, within_s: float, called_off: asyncio.Event) -> AsyncIterator[None]:
        """Waits for a place, and holds it until this is left. Raises NoTurn where none was free within the seconds, or
        before it was called off."""
        try:
            async with asyncio.timeout(within_s):
                await self._take(priority, called_off)
        except TimeoutError:
            raise NoTurn from None
        try:
            yield
        finally:
            self._give_back()

    async def _take(self, priority: int, called_off: asyncio.Event) -> None:
        if called_off.is_set():
            raise NoTurn
        if self._free and not self.waiting:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (-priority, next(self._numbers), turn))
        wish = asyncio.create_task(called_off.wait())
        has_turn = False
        try:
            await asyncio.wait((turn, wish), return_when=asyncio.FIRST_COMPLETED)
            has_turn = turn.done()
        finally:
            wish.cancel()
            if not has_turn and not turn.cancel():
                self._give_back()
        if not has_turn:
            raise NoTurn

    def _give_back(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
