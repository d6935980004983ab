"""Items of a stream by the handful: none is lost or late, and the source ends with whoever reads it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from ratchet.concurrency.keyed import in_batches
from tests.waiting import settled


class Source:
    """Gives what is put; None ends it, an error is raised."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[int | Exception | None] = asyncio.Queue()
        self.closed = False

    async def items(self) -> AsyncGenerator[int, None]:
        try:
            while (item := await self.queue.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.closed = True

    def put(self, *items: int | Exception | None) -> None:
        for item in items:
            self.queue.put_nowait(item)


async def test_what_came_meanwhile_comes_at_once_and_the_first_item_is_not_waited_for() -> None:
    source, told = Source(), []
    source.put(1)
    async with aclosing(in_batches(source.items())) as many:
        async for items in many:
            told.append(items)
            if len(told) == 1:
                source.put(2, 3, 4)
                await settled()
                source.put(None)

    assert told == [[1], [2, 3, 4]]
    assert source.closed


async def test_an_error_comes_behind_all_that_came_before_it() -> None:
    source, told = Source(), []
    source.put(1, 2, ValueError("gone"))
    with pytest.raises(ValueError, match="gone"):
        async for items in in_batches(source.items()):
            told += items

    assert told == [1, 2] and source.closed


async def test_closed_or_cancelled_it_closes_the_source() -> None:
    for cancelled in (False, True):
        source = Source()
        source.put(1)
        many = in_batches(source.items())
        assert await anext(many) == [1]
        if cancelled:
            waiting = asyncio.ensure_future(anext(many))
            await settled()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        else:
            await many.aclose()
        assert source.closed
