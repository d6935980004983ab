"""Work of the processor's in threads, waited for to its end also by who is cancelled meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

_LARGE = ThreadPoolExecutor(64, thread_name_prefix="large")
"""Work that takes seconds does not keep what asyncio's own few threads are for."""


async def wait_out(work: asyncio.Future[Any]) -> None:
    """Wait until it is done, whatever cancels this meanwhile."""
    while not work.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({work})


async def off_loop(function: Callable[[], T], *, is_large: bool) -> T:
    """Run the function, in a thread where it takes long. Cancelled, this ends when the thread does."""
    if not is_large:
        return function()
    work = asyncio.get_running_loop().run_in_executor(_LARGE, function)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await wait_out(work)
        work.exception()
        raise
