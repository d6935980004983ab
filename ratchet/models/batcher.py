"""Gathers concurrent requests into batches: what waits is taken as soon as the runner is free. No timers, no threads.

One batch runs at a time, so a busy runner is what makes batches grow; an idle one answers a lone request at once.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(order=True, slots=True)
class _Place(Generic[T]):
    urgency: int
    arrival: int
    size: int = field(compare=False)
    item: T = field(compare=False)


class WaitingLine(Generic[T]):
    """Items that wait to be in a batch: by priority, then by arrival; nothing overtakes to fill a gap. Pure.

    `given_up` says of an item that nobody waits for it any more: it is passed over.
    """

    def __init__(self, given_up: Callable[[T], bool]) -> None:
        self._given_up = given_up
        self._heap: list[_Place[T]] = []
        self._arrivals = 0

    def __iter__(self) -> Iterator[T]:
        """Yield the items in no order."""
        return (place.item for place in self._heap if not self._given_up(place.item))

    def add(self, item: T, size: int, priority: int = 0) -> None:
        """The higher priority goes first."""
        heapq.heappush(self._heap, _Place(-priority, self._arrivals, size, item))
        self._arrivals += 1

    def next(self, fits: Callable[[T], bool]) -> T | None:
        """The next item, taken out, if it fits."""
        while self._heap:
            first = self._heap[0].item
            given_up = self._given_up(first)
            if not given_up and not fits(first):
                return None
            heapq.heappop(self._heap)
            if not given_up:
                return first
        return None

    def batch(self, max_size: int) -> list[T]:
        """The next items, whose sizes add up to at most that; a single larger one is a batch of its own."""
        taken: list[T] = []
        size = 0
        while self._heap:
            first = self._heap[0]
            if not self._given_up(first.item):
                size += first.size
                if taken and size > max_size:
                    break
                taken.append(first.item)
            heapq.heappop(self._heap)
        return taken


Req = TypeVar("Req")
Res = TypeVar("Res")


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[Req, Res]):
    request: Req
    answer: asyncio.Future[Res]


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
        self._line: WaitingLine[_Waiting[Req, Res]] = WaitingLine(lambda entry: entry.answer.done())
        self._runner: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Requests not yet taken into a batch."""
        return len(list(self._line))

    async def submit(self, request: Req, *, priority: int = 0) -> Res:
        """The request's own result; raises its own exception. Cancelled before its batch starts, it is never run."""
        answer: asyncio.Future[Res] = asyncio.get_running_loop().create_future()
        self._line.add(_Waiting(request, answer), self._size_of(request), priority)
        if self._runner is None:
            # A context of its own: a batch must not log under the task id of whoever happened to come first.
            self._runner = asyncio.create_task(self._run_until_empty(), context=Context())
        return await answer

    async def _run_until_empty(self) -> None:
        try:
            while batch := self._line.batch(self._max_batch):
                await self._answer(batch)
        finally:
            self._runner = None
            for entry in self._line:
                entry.answer.cancel()

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
