"""Waiting for what will be said of a key: any number of coroutines for each. Nearly free when nobody waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class KeyedFutures(Generic[T]):
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
