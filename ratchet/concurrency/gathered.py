"""Items of a stream, as many at once as have come by now: so whoever takes longer for one than it takes to come keeps
up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

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
