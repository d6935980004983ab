"""Threads for what an API call waits for on disk or on a socket: few, and not those the service itself works with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 4


class Threads:
    """A burst of slow calls waits here, and holds up nobody else."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(THREADS, f"{name}-api")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the function returns or raises. It runs to its end, even if nobody waits for it any more."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(function, *args, **kwargs))

    def close(self) -> None:
        """Waits for nothing: what runs ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)
