"""A stream of events on a real socket: clients that go, and one that takes nothing for too long."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import FastAPI, Header

from ratchet.http.access.guard import caller
from ratchet.http.access.roles import LOCAL, Caller, Role
from ratchet.http.server.application import Problems
from ratchet.runtime.runner import TAKES_NOTHING_MS, _listen
from services.orchestrator.api.events import events_router
from services.orchestrator.observation.event_hub import EventHub
from tests.serving import serving
from tests.waiting import until

PLACES = 8
KEPT_OPEN: list[asyncio.StreamWriter] = []
ASKED = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"


def named(x_name: Annotated[str, Header()] = "") -> Caller:
    """In place of the guard."""
    return Caller(x_name, Role.VIEWER) if x_name else LOCAL


async def status_for(port: int, name: str) -> int:
    """Of a stream that is left open for as long as the server is."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(ASKED.replace(b"\r\n\r\n", b"\r\nX-Name: %b\r\n\r\n" % name.encode()))
    line = await reader.readline()
    if b"200" in line:
        await reader.readuntil(b"retry: ")
        KEPT_OPEN.append(writer)
    else:
        writer.close()
    return int(line.split()[1])


@asynccontextmanager
async def served(hub: EventHub, takes_nothing_ms: int) -> AsyncIterator[int]:
    """The port it listens on, as a service does, save for how long a client may take nothing."""
    app = FastAPI()
    app.include_router(events_router(hub))
    app.dependency_overrides[caller] = named
    app.add_middleware(Problems)
    listener = _listen("127.0.0.1", 0, "orchestrator")
    assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == TAKES_NOTHING_MS
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, takes_nothing_ms)
    async with serving(app, listener, http="h11", timeout_graceful_shutdown=None):
        yield listener.getsockname()[1]
        hub.close()


async def test_who_goes_is_forgotten_and_who_stays_hears_the_end() -> None:
    hub = EventHub("now")
    async with served(hub, TAKES_NOTHING_MS) as port:
        (one, one_writer), (_, other_writer) = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for writer in (one_writer, other_writer):
            writer.write(ASKED)
        await until(lambda: hub.clients == 2)

        other_writer.close()
        await until(lambda: hub.clients == 1)
        hub.publish("e", {"n": 1})
        assert b'data: {"n":1}' in await one.readuntil(b'{"n":1}')

    assert (await one.read()).endswith(b"0\r\n\r\n")
    assert hub.clients == 0
    one_writer.close()


async def test_one_caller_has_a_quarter_of_the_places_and_leaves_the_others_theirs() -> None:
    hub = EventHub("now", most_clients=PLACES)
    async with served(hub, TAKES_NOTHING_MS) as port:
        greedy = [await status_for(port, "anna") for _ in range(4)]
        others = [await status_for(port, "ben"), *[await status_for(port, "") for _ in range(3)]]
        KEPT_OPEN.pop(0).close()
        await until(lambda: hub.clients == 5)
        again = await status_for(port, "anna")

    assert greedy == [200, 200, 429, 429]
    assert others == [200] * 4
    assert again == 200
    while KEPT_OPEN:
        KEPT_OPEN.pop().close()


async def test_who_takes_nothing_is_cut_off_by_the_kernel() -> None:
    hub = EventHub("now")
    async with served(hub, 500) as port:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.connect(("127.0.0.1", port))
        client.sendall(ASKED)
        await until(lambda: hub.clients == 1)

        async with asyncio.timeout(60):
            while hub.clients:
                for number in range(200):
                    hub.publish("e", {"n": number, "padding": "x" * 300})
                await asyncio.sleep(0.05)  # real time: the socket's buffers fill up
        client.close()


async def test_who_reads_nothing_holds_up_nobody_else_and_is_told_of_the_gap() -> None:
    hub = EventHub("now", size=256)
    async with served(hub, TAKES_NOTHING_MS) as port:
        stopped = socket.socket()
        stopped.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        stopped.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)  # else the kernel keeps megabytes for it
        stopped.connect(("127.0.0.1", port))
        stopped.sendall(ASKED)
        await until(lambda: hub.clients == 1)
        readers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(30)]
        for _, writer in readers:
            writer.write(ASKED)
        await until(lambda: hub.clients == 31)

        for wave in range(20):
            for number in range(100):
                hub.publish("e", {"n": 100 * wave + number, "padding": "x" * 300})
            last = b'{"n":%d,' % (100 * wave + 99)
            async with asyncio.timeout(30):
                read = await asyncio.gather(*(reader.readuntil(last) for reader, _ in readers))
            assert {part.count(b"event: e") for part in read} == {100}
            assert not any(b"event: gap" in part for part in read)

        stopped.setblocking(False)
        loop, heard = asyncio.get_running_loop(), b""
        async with asyncio.timeout(30):
            while b'{"n":1999,' not in heard:
                heard += await loop.sock_recv(stopped, 65536)
        missed = sum(int(number) for number in re.findall(rb'"missed":(\d+)', heard))
        assert missed > 0
        assert heard.count(b"event: e") + missed == 2000
        stopped.close()
        for _, writer in readers:
            writer.close()
