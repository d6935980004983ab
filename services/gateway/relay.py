"""Relays TCP connections to whoever leads, byte by byte: requests, streams of events and MCP sessions alike.

What is left out: HTTP. Nothing is read, changed, retried or kept; a connection lives and dies with the leader it was
made to. While nobody leads, it is closed with a 503 that says so.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import suppress

from ratchet.openai.errors import error_object
from services.gateway.leader import Address

BLOCK_BYTES = 64 * 1024
CONNECT_WITHIN_S = 5.0
NOBODY_LEADS = "no orchestrator leads at the moment: try again in a second"
NOBODY = {
    "type": "about:blank",
    "title": "Service Unavailable",
    "status": 503,
    "detail": NOBODY_LEADS,
    "error": error_object(503, NOBODY_LEADS),
}


class Relay:
    """A connection handler for `asyncio.start_server`."""

    def __init__(self, leader: Callable[[], Address | None]) -> None:
        self._leader = leader

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        except OSError:
            return  # either end is gone, and so is the other
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await self._connect()
        if there is None:
            writer.write(refusal())
            await writer.drain()
            return
        reader_there, writer_there = there
        try:
            await _both(_copy(reader, writer_there), _copy(reader_there, writer))
        finally:
            writer_there.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        if (address := self._leader()) is None:
            return None
        with suppress(OSError, TimeoutError):
            return await asyncio.wait_for(asyncio.open_connection(*address), CONNECT_WITHIN_S)
        return None


async def _both(to_leader: Coroutine[None, None, None], to_client: Coroutine[None, None, None]) -> None:
    """Until the leader has said all it had to: a client may end its half of the connection and still wait."""
    up, down = asyncio.create_task(to_leader), asyncio.create_task(to_client)
    try:
        await down
    finally:
        up.cancel()
        await asyncio.gather(up, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while block := await reader.read(BLOCK_BYTES):
        writer.write(block)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


def refusal() -> bytes:
    body = json.dumps(NOBODY).encode()
    head = (
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nRetry-After: 1\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
