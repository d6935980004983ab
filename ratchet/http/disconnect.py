"""Work that ends when the client has gone: nobody would read its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request

from ratchet.http.problem import Problem

T = TypeVar("T")


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What the work returns or raises; cancelled, and a Problem that nobody sees, once the client has gone.

    Only for work that may be broken off anywhere. The body must have been read.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise Problem(408, "Gone", "the client went away before there was an answer")
    finally:
        for task in (working, leaving):
            task.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
