"""A lock and futures by key, for coroutines of one process: nearly free when nobody waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


async def in_batches(source: AsyncGenerator[T, None]) -> AsyncGenerator[list[T], None]:
    """One item at least each time. Raises what the source raises, behind all that came before.

    The source is read by a task of its own, and closed once this is.
    """
    came: list[T] = []
    more = asyncio.Event()

    async def read() -> None:
        try:
            async with aclosing(source):
                async for item in source:
                    came.append(item)
                    more.set()
        finally:
            more.set()

    reading = asyncio.create_task(read())
    try:
        while came or not reading.done():
            await more.wait()
            more.clear()
            if came:
                items = came.copy()
                came.clear()
                yield items
        reading.result()
    finally:
        reading.cancel()
        await asyncio.wait({reading})


class KeyedLock:
    """One at a time for each key: `async with lock.of(key): …`. Which of several that wait is next is not promised."""

    def __init__(self) -> None:
        self._taken: dict[str, asyncio.Event | None] = {}
        """Keys whose turn somebody has; with an event, made by the first who waits, for its end."""

    def __contains__(self, key: object) -> bool:
        """Tell whether it is somebody's turn."""
        return key in self._taken

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


class KeyedFutures(Generic[T]):
    """Waiting for what will be said of a key: any number of coroutines for each."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Future[T]]] = {}

    def __len__(self) -> int:
        return sum(len(those) for those in self._waiting.values())

    @contextmanager
    def of(self, key: str) -> Iterator[asyncio.Future[T]]:
        """A future for the next `resolve` of this key. Whoever leaves, cancelled or not, leaves nothing behind."""
        waiting: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        those = self._waiting.setdefault(key, set())
        those.add(waiting)
        try:
            yield waiting
        finally:
            those.discard(waiting)
            if not those:
                self._waiting.pop(key, None)

    def resolve(self, key: str, value: T) -> None:
        for waiting in self._waiting.get(key, ()):
            if not waiting.done():
                waiting.set_result(value)


def cancelled_by_us() -> bool:
    """Tell, in an `except CancelledError`, whether this task itself was cancelled, and not what it awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
