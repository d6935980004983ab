"""Gathers concurrent requests into batches: what waits is taken as soon as the runner is free. No timers, no threads.

One batch runs at a time, so a busy runner is what makes batches grow; an idle one answers a lone request at once.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Req = TypeVar("Req")
Res = TypeVar("Res")


@dataclass(order=True, slots=True)
class _Waiting(Generic[Req, Res]):
    urgency: int
    arrival: int
    size: int = field(compare=False)
    request: Req = field(compare=False)
    answer: asyncio.Future[Res] = field(compare=False)


class Batcher(Generic[Req, Res]):
    """`run` answers a batch with one result per request, in order; an Exception as a result fails that request alone.

    If `run` itself raises, the requests of that batch are run again one by one, so that only the guilty one fails.
    A batch holds requests whose sizes (`size_of`, 1 each by default) add up to at most `max_batch`; a single larger
    request is a batch of its own. Order: higher priority first, then arrival; nothing overtakes to fill a gap.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Req]], Awaitable[Sequence[Res | Exception]]],
        *,
        max_batch: int,
        size_of: Callable[[Req], int] = lambda request: 1,
    ) -> None:
        self._run = run
        self._max_batch = max_batch
        self._size_of = size_of
        self._waiting: list[_Waiting[Req, Res]] = []
        self._arrivals = 0
        self._runner: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Requests not yet taken into a batch."""
        return sum(not entry.answer.done() for entry in self._waiting)

    async def submit(self, request: Req, *, priority: int = 0) -> Res:
        """The request's own result; raises its own exception. Cancelled before its batch starts, it is never run."""
        answer: asyncio.Future[Res] = asyncio.get_running_loop().create_future()
        entry = _Waiting(-priority, self._arrivals, self._size_of(request), request, answer)
        self._arrivals += 1
        heapq.heappush(self._waiting, entry)
        if self._runner is None:
            # A context of its own: a batch must not log under the task id of whoever happened to come first.
            self._runner = asyncio.create_task(self._run_until_empty(), context=Context())
        return await answer

    async def _run_until_empty(self) -> None:
        try:
            while batch := self._take():
                await self._answer(batch)
        finally:
            self._runner = None
            for entry in self._waiting:
                entry.answer.cancel()
            self._waiting.clear()

    def _take(self) -> list[_Waiting[Req, Res]]:
        batch: list[_Waiting[Req, Res]] = []
        size = 0
        while self._waiting:
            entry = self._waiting[0]
            if not entry.answer.done():
                size += entry.size
                if batch and size > self._max_batch:
                    break
                batch.append(entry)
            heapq.heappop(self._waiting)
        return batch

    async def _answer(self, batch: Sequence[_Waiting[Req, Res]]) -> None:
        try:
            results = await self._results(batch)
            for entry, result in zip(batch, results, strict=True):
                _settle(entry.answer, result)
        finally:
            for entry in batch:
                entry.answer.cancel()

    async def _results(self, batch: Sequence[_Waiting[Req, Res]]) -> Sequence[Res | Exception]:
        try:
            results = await self._run([entry.request for entry in batch])
            if len(results) != len(batch):
                raise RuntimeError(f"{len(batch)} requests were answered with {len(results)} results: fix the runner")
        except Exception as error:
            if len(batch) == 1:
                return [error]
            return [(await self._results([entry]))[0] for entry in batch]
        return results


def _settle(answer: asyncio.Future[Res], result: Res | Exception) -> None:
    if answer.done():
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
    else:
        answer.set_result(result)
