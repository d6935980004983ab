"""Connections reach whoever leads, as it changes; while nobody does, a client is told to try again."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from services.gateway.__main__ import USAGE, address, main
from services.gateway.leader import Address, Leader, Relay
from tests.waiting import until


class Orchestrator:
    """Says who it is; /readyz as it is told."""

    def __init__(self, name: str, *, leads: bool) -> None:
        self.name = name
        self.leads = leads
        self.reason = "standby: the orchestrator of pid 1 holds logs/.lock"
        self.address: Address = ("", 0)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET /readyz"):
            status = "200 OK" if self.leads else "503 Service Unavailable"
            body = json.dumps({"ready": self.leads, "reason": None if self.leads else self.reason})
            writer.write(f"HTTP/1.1 {status}\r\nConnection: close\r\n\r\n{body}".encode())
        else:
            size = next(
                (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0
            )
            body = f"{self.name} got {len(await reader.readexactly(size))}".encode()
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            for part in (body[:3], body[3:]):  # as a stream does: no length, and in pieces
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.01)  # real time: a stream's pieces come apart
        writer.close()


@asynccontextmanager
async def at_work(*orchestrators: Orchestrator) -> AsyncIterator[tuple[Leader, str]]:
    """The leader's finder, and the gateway's URL."""
    servers = []
    for one in orchestrators:
        servers.append(await asyncio.start_server(one.answer, "127.0.0.1", 0))
        one.address = servers[-1].sockets[0].getsockname()
    leader = Leader([one.address for one in orchestrators])
    following = asyncio.create_task(leader.follow())
    gateway = await asyncio.start_server(Relay(lambda: leader.address), "127.0.0.1", 0)
    try:
        yield leader, f"http://127.0.0.1:{gateway.sockets[0].getsockname()[1]}"
    finally:
        following.cancel()
        for server in (gateway, *servers):
            server.close()


async def led_by(leader: Leader, address: Address | None) -> None:
    await until(lambda: leader.address == address)


async def test_requests_follow_the_leader() -> None:
    one, two = Orchestrator("one", leads=True), Orchestrator("two", leads=False)
    async with at_work(one, two) as (leader, url), httpx.AsyncClient(timeout=30) as client:
        await led_by(leader, one.address)
        sent = bytes(300_000)
        assert (await client.post(url, content=sent)).text == "one got 300000"

        one.leads, two.leads = False, True
        await led_by(leader, two.address)

        assert (await client.post(url, content=sent)).text == "two got 300000"


async def test_a_leader_in_trouble_is_still_asked_unless_another_is_ready() -> None:
    one, two = Orchestrator("one", leads=False), Orchestrator("two", leads=False)
    one.reason = "index-commit fails: the disk is full"
    async with at_work(two, one) as (leader, _):
        await led_by(leader, one.address)
        two.leads = True
        await led_by(leader, two.address)


async def test_while_nobody_leads_a_client_is_told_to_try_again() -> None:
    one = Orchestrator("one", leads=False)
    async with at_work(one) as (leader, url), httpx.AsyncClient(timeout=30) as client:
        refused = await client.get(url)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["detail"].startswith("no orchestrator leads")

        leader.address = ("127.0.0.1", 1)  # one that is gone since it was last asked
        assert (await client.get(url)).status_code == 503


async def test_a_connection_to_a_machine_that_is_gone_ends() -> None:
    one = Orchestrator("one", leads=True)
    async with at_work(one):
        there = await Relay(lambda: one.address)._connect()
        assert there is not None
        asked = there[1].get_extra_info("socket")
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert asked.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert [asked.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [10, 5, 3]
        there[1].close()


async def test_a_name_that_is_not_known_yet_is_asked_again() -> None:
    assert await Leader([("no-such-name.invalid", 1), ("127.0.0.1", 1)]).find() is None


def test_addresses_as_typed() -> None:
    assert address("orchestrator:8700") == ("orchestrator", 8700)
    with pytest.raises(ValueError, match="HOST:PORT"):
        address("orchestrator")
    assert main(["8700"]) == USAGE
    assert main(["check", "1"]) == "nothing listens on port 1"
