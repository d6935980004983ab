"""Work done for a call: in threads of its own, and given up where the client has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from fastapi import Request
from starlette.types import Receive

from ratchet.http.problem import Problem

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 4


class Threads:
    """A burst of slow calls waits here, and holds up nobody else."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(THREADS, f"{name}-api")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what the function returns or raises. It runs to its end, even if nobody waits for it any more."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(function, *args, **kwargs))

    def close(self) -> None:
        """Waits for nothing: what runs ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return what the work returns or raises; cancelled, and a Problem that nobody sees, once the client has gone.

    Only for work that may be broken off anywhere. The body must have been read.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(wait_for_disconnect(request.receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise Problem(408, "Gone", "the client went away before there was an answer")
    finally:
        for task in (working, leaving):
            task.cancel()


async def wait_for_disconnect(receive: Receive) -> None:
    """Return once the client of this request has gone. The body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass
