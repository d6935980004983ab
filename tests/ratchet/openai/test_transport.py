"""HTTP to an engine, by a server that writes just these bytes: pieces as they come, connections kept, faults named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import pytest

from ratchet.openai.transport import MOST_HELD, StreamingTransport
from tests.waiting import until

CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass
class Server:
    """`writes`: what it sends to each request, piece by piece; `None` closes the connection. `go`: each piece waits."""

    http: httpx.AsyncClient
    asked: list[bytes] = field(default_factory=list)
    connections: int = 0
    closed: int = 0
    writes: list[bytes | None] = field(default_factory=list)
    go: Callable[[], Awaitable[object]] | None = None


@asynccontextmanager
async def server(*writes: bytes | None, read_s: float = 5.0) -> AsyncIterator[Server]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        at.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
                at.asked.append(head + await reader.readexactly(length))
                for part in at.writes:
                    if at.go:
                        await at.go()
                    if part is None:
                        writer.close()
                        return
                    writer.write(part)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            at.closed += 1
            writer.close()

    listening = await asyncio.start_server(handle, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    timeout = httpx.Timeout(5.0, read=read_s)
    async with httpx.AsyncClient(transport=StreamingTransport(), base_url=url, timeout=timeout) as http:
        at = Server(http, writes=list(writes))
        yield at
    listening.close()


async def test_pieces_are_told_as_they_come_and_the_connection_is_kept() -> None:
    gate = asyncio.Semaphore(1)
    async with server(CHUNKED, b"3\r\none\r\n", b"4\r\n two\r\n", b"0\r\n\r\n") as at:
        at.go = gate.acquire
        for _ in range(2):
            async with at.http.stream("POST", "/v1/x?y=1", json={"a": "é"}) as reply:
                assert (reply.status_code, reply.headers["content-type"]) == (200, "text/event-stream")
                told = []
                gate.release()
                async for part in reply.aiter_bytes():
                    told.append(part)
                    gate.release()
                gate.release()
            assert told == [b"one", b" two"]
        at.go = None
        assert at.connections == 1
        assert at.asked[0] == at.asked[1]
        assert at.asked[0].startswith(b"POST /v1/x?y=1 HTTP/1.1\r\nHost: 127.0.0.1:")
        assert at.asked[0].endswith('\r\n\r\n{"a":"é"}'.encode())


@pytest.mark.parametrize(
    ("writes", "body", "kept"),
    [
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n", b"abc"], b"abc", True),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], b"", True),
        ([b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 3\r\n\r\nabc"], b"abc", False),
        ([b"HTTP/1.1 200 OK\r\n\r\n", b"abc", None], b"abc", False),
        ([b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\n", b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"], b"", True),
    ],
    ids=["length", "none", "closes", "until it closes", "goes on"],
)
async def test_an_answer_ends_where_it_says(writes: list[bytes | None], body: bytes, kept: bool) -> None:
    async with server(*writes) as at:
        for _ in range(2):
            reply = await at.http.post("/", json=[])
            assert reply.content == body
            assert "x" not in reply.headers
        assert at.connections == (1 if kept else 2)


@pytest.mark.parametrize(
    ("writes", "kind"),
    [
        ([None], httpx.RemoteProtocolError),
        ([CHUNKED, b"3\r\none\r\n", None], httpx.RemoteProtocolError),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc", None], httpx.RemoteProtocolError),
        ([b"220 mail.example.org\r\n"], httpx.RemoteProtocolError),
        ([CHUNKED, b"no size\r\n"], httpx.RemoteProtocolError),
        ([CHUNKED, b"3\r\none\r\n"], httpx.ReadTimeout),
        ([b""], httpx.ReadTimeout),
    ],
)
async def test_what_breaks_off_or_is_silent_is_an_error_of_httpx(
    writes: list[bytes | None], kind: type[httpx.TransportError]
) -> None:
    async with server(*writes, read_s=0.2 if kind is httpx.ReadTimeout else 30.0) as at:
        with pytest.raises(kind):
            await at.http.post("/", json=[])
        await until(lambda: at.closed == 1, "the connection is given up")


async def test_nobody_there_and_a_body_of_unknown_length() -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"a"

    async with server() as at:
        with pytest.raises(httpx.LocalProtocolError):
            await at.http.post("/", content=parts())
    async with httpx.AsyncClient(transport=StreamingTransport()) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(at.http.base_url)


async def test_an_answer_that_is_left_in_the_middle_ends_its_connection() -> None:
    async with server(CHUNKED, b"3\r\none\r\n") as at:
        async with at.http.stream("POST", "/", json=[]) as reply:
            assert await anext(reply.aiter_bytes()) == b"one"
        await until(lambda: at.closed == 1, "the server sees it")
        waiting = asyncio.ensure_future(at.http.post("/", json=[]))
        await until(lambda: len(at.asked) == 2, "it is asked again")
        waiting.cancel()
        await until(lambda: at.closed == 2, "the server sees that too")


async def test_who_reads_slowly_is_not_sent_more_than_it_may_hold() -> None:
    size = 64 * MOST_HELD
    async with server(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size, bytes(size)) as at:
        async with at.http.stream("GET", "/") as reply:
            parts = [len(part) async for part in reply.aiter_bytes()]
        assert sum(parts) == size
        assert max(parts) < 4 * MOST_HELD


async def test_a_connection_that_was_closed_meanwhile_is_not_used_again() -> None:
    async with server(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", None) as at:
        for count in (1, 2):
            assert (await at.http.get("/")).is_success
            await until(lambda count=count: at.closed == count, "the server has closed it")
            await asyncio.sleep(0)
        assert at.connections == 2
