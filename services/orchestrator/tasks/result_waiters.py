"""Callers who wait for a task to be closed: one look in a table for each task that is, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ratchet.concurrency.keyed import KeyedFutures


class ResultWaiters:
    """`wait` for it, after a look whether it is closed already; whoever closes tasks says so with `closed`."""

    def __init__(self) -> None:
        self._waiting = KeyedFutures[None]()

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, task_id: str, is_closed: Callable[[], bool], seconds: float) -> bool:
        """Whether it was closed in time. A caller that is cancelled leaves nothing behind."""
        if is_closed():
            return True
        if seconds <= 0:
            return False
        with self._waiting.of(task_id) as waiting:
            try:
                async with asyncio.timeout(seconds):
                    await waiting
            except TimeoutError:
                return is_closed()
        return True

    def closed(self, task_id: str) -> None:
        self._waiting.resolve(task_id, None)
