"""Remembers the answers given last, so that a Work delivered again gets the same answer instead of a second one.

In memory: after a restart the work is done again, and downstream the deterministic message ids take care of it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable

KEPT_BYTES = 64 * 1024 * 1024


class RecentAnswers:
    """Also joins a delivery to an answer still being made; an answer outlives the handler that asked for it."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._bytes = 0
        self._made: OrderedDict[Hashable, bytes] = OrderedDict()
        self._making: dict[Hashable, asyncio.Task[bytes]] = {}

    async def answer(self, key: Hashable, make: Callable[[], Coroutine[None, None, bytes]]) -> bytes:
        """The answer of that key, made by `make` unless it was before. A failure is raised and not remembered."""
        if key in self._made:
            return self._made[key]
        if key not in self._making:
            task = asyncio.create_task(make())
            self._making[key] = task
            task.add_done_callback(lambda done: self._settle(key, done))
        return await asyncio.shield(self._making[key])

    def _settle(self, key: Hashable, task: asyncio.Task[bytes]) -> None:
        del self._making[key]
        if not task.cancelled() and task.exception() is None:
            self._made[key] = task.result()
            self._bytes += len(task.result())
        while self._bytes > self._kept_bytes:
            self._bytes -= len(self._made.popitem(last=False)[1])

    async def stop(self) -> None:
        """Give up the answers still being made."""
        unfinished = list(self._making.values())
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
