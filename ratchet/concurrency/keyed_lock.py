"""One at a time for each key: whoever comes while another has its turn waits. Nearly free when nobody does."""

from __future__ import annotations

import asyncio
from types import TracebackType


class KeyedLock:
    """`async with turns.of(key): …`. Which of several that wait is next is not promised."""

    def __init__(self) -> None:
        self._taken: dict[str, asyncio.Event | None] = {}
        """Keys whose turn somebody has; with an event, made by the first who waits, for its end."""

    def of(self, key: str) -> Turn:
        return Turn(self._taken, key)


class Turn:
    __slots__ = ("_key", "_taken")

    def __init__(self, taken: dict[str, asyncio.Event | None], key: str) -> None:
        self._taken = taken
        self._key = key

    async def __aenter__(self) -> None:
        while self._key in self._taken:
            ended = self._taken[self._key] or asyncio.Event()
            self._taken[self._key] = ended
            await ended.wait()
        self._taken[self._key] = None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (ended := self._taken.pop(self._key)) is not None:
            ended.set()
