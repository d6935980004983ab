"""Lines of a body that streams, as bytes: what reads them is JSON's, which takes bytes at less cost than text."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import httpx


async def lines(reply: httpx.Response) -> AsyncGenerator[bytes, None]:
    """Yield lines as they come, without their ends; the last one also where it has none. Raises httpx.HTTPError."""
    had = b""
    async for part in reply.aiter_bytes():
        *whole, had = (had + part).split(b"\n")
        for line in whole:
            yield line.rstrip(b"\r")
    if had:
        yield had
