"""Callers who wait for a task to be closed: one look in a table for each task that is, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class ResultWaiters:
    """`wait` for it, after a look whether it is closed already; whoever closes tasks says so with `closed`."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    def __len__(self) -> int:
        return sum(len(those) for those in self._waiting.values())

    async def wait(self, task_id: str, is_closed: Callable[[], bool], seconds: float) -> bool:
        """Whether it was closed in time. A caller that is cancelled leaves nothing behind."""
        if is_closed():
            return True
        if seconds <= 0:
            return False
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(task_id, set()).add(waiting)
        try:
            async with asyncio.timeout(seconds):
                await waiting
        except TimeoutError:
            return is_closed()
        finally:
            self._forget(task_id, waiting)
        return True

    def closed(self, task_id: str) -> None:
        for waiting in self._waiting.get(task_id, ()):
            if not waiting.done():
                waiting.set_result(None)

    def _forget(self, task_id: str, waiting: asyncio.Future[None]) -> None:
        those = self._waiting.get(task_id)
        if those is not None:
            those.discard(waiting)
            if not those:
                del self._waiting[task_id]
