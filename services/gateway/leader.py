"""Finds which of several orchestrators leads: the one whose /readyz says so, asked again and again.

One that is in trouble (its disk is full, say) leads too, if no other does: its API says what is wrong.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from enum import IntEnum

from ratchet.openai.transport import error_object
from ratchet.service.telemetry import Log

log = Log("gateway")

ASK_EVERY_S = 0.5
ANSWER_WITHIN_S = 2.0
MOST_BYTES = 64 * 1024

Address = tuple[str, int]


class Role(IntEnum):
    GONE = 0
    """It does not answer, or stands by."""
    IN_TROUBLE = 1
    """It leads, or begins to, but can't do its work now."""
    READY = 2


class Leader:
    """`address` is where connections go; None while nobody leads."""

    def __init__(self, names: Sequence[Address]) -> None:
        """Each name may stand for several addresses, as that of a headless service does."""
        self._names = names
        self.address: Address | None = None

    async def follow(self) -> None:
        """Follow the leader for ever."""
        while True:
            self._set_address(await self.find())
            await asyncio.sleep(ASK_EVERY_S)

    async def find(self) -> Address | None:
        """Find the leader. The leader known is asked first, and the others only if it is not ready."""
        if self.address is not None and await role_of(self.address) is Role.READY:
            return self.address
        known = [address for name in self._names for address in await addresses_of(name)]
        roles = await asyncio.gather(*(role_of(address) for address in known))
        best, _, address = max(
            ((one, address == self.address, address) for one, address in zip(roles, known, strict=True)),
            default=(Role.GONE, False, None),
        )
        return address if best > Role.GONE else None

    def _set_address(self, address: Address | None) -> None:
        if address != self.address:
            if address is None:
                log.warning("no-leader", "no orchestrator leads: connections are refused until one does")
            else:
                log.info("leader", f"the orchestrator at {address[0]}:{address[1]} leads")
        self.address = address


async def addresses_of(name: Address) -> list[Address]:
    """None while the name is not known."""
    with suppress(OSError):
        found = await asyncio.get_running_loop().getaddrinfo(*name, type=socket.SOCK_STREAM)
        return sorted({(str(address[0]), name[1]) for *_, address in found})
    return []


async def role_of(address: Address) -> Role:
    """Return the role that its /readyz tells."""
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            head, _, body = (await _answer(address)).partition(b"\r\n\r\n")
    except (OSError, TimeoutError):
        return Role.GONE
    if b" 200 " in head.partition(b"\r\n")[0]:
        return Role.READY
    return Role.GONE if b'"standby: ' in body or not body else Role.IN_TROUBLE


async def _answer(address: Address) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = b""
        while len(answer) < MOST_BYTES and (part := await reader.read(MOST_BYTES)):
            answer += part
        return answer
    finally:
        writer.close()


BLOCK_BYTES = 64 * 1024
CONNECT_WITHIN_S = 5.0
KEEPALIVE = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}
"""Ends a connection to a machine that is gone: who waits for an answer over it would wait for ever."""
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
            there = await asyncio.wait_for(asyncio.open_connection(*address), CONNECT_WITHIN_S)
            asked = there[1].get_extra_info("socket")
            asked.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in KEEPALIVE.items():
                asked.setsockopt(socket.IPPROTO_TCP, option, value)
            return there
        return None


async def _both(to_leader: Coroutine[None, None, None], to_client: Coroutine[None, None, None]) -> None:
    """Relay until the leader has said all: a client may end its half of the connection and still wait."""
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
