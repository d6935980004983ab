"""Connections on a real socket: those that say nothing are closed, those at work are not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.types import Receive, Scope, Send

from ratchet.runtime.runner import HeaderTimeoutProtocol
from tests.serving import serving

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEAD_S = 0.5


class Soon(HeaderTimeoutProtocol):
    head_s = HEAD_S


async def slow(scope: Scope, receive: Receive, send: Send) -> None:
    """Its answer takes far longer than a head may."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await asyncio.sleep(2.5 * HEAD_S)  # real time: longer than the timeout of uvicorn's own clock
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def served() -> AsyncIterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    async with serving(slow, listener, http=Soon):
        yield listener.getsockname()[1]


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: loc", REQUEST + REQUEST[:20]])
async def test_a_head_that_does_not_come_ends_the_connection(said: bytes) -> None:
    async with served() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)

        async with asyncio.timeout(30):
            answer = await reader.read()

    assert answer.count(b"200 OK") == said.count(b"\r\n\r\n")
    writer.close()


async def test_an_answer_may_take_its_time() -> None:
    async with served() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(REQUEST)
            async with asyncio.timeout(30):
                assert await reader.readuntil(b"ok")
        writer.close()
