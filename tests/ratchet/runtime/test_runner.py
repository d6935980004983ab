"""The runner: who may call what while a service starts, works, drains; and that no open stream holds up its end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx
import pytest
from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from ratchet.bus.topology import fleet_topology
from ratchet.http.operation import OPERATOR, VIEWER, operation
from ratchet.runtime.runner import Runner, Subscription
from ratchet.service.errors import SettingsError
from ratchet.service.settings import FleetSettings
from tests.memory_bus import MemoryBus
from tests.private_broker import free_port
from tests.waiting import until


class Slow:
    """Starts and drains when the test says; its route streams without an end."""

    name = "agent"

    def __init__(self) -> None:
        self.starts = asyncio.Event()
        self.stops = asyncio.Event()
        self.stopping = asyncio.Event()

    def routers(self) -> Sequence[APIRouter]:
        async def endless() -> AsyncIterator[str]:
            while True:
                yield "on and on\n"
                await asyncio.sleep(0.01)  # real time: a stream

        @operation(VIEWER, OPERATOR)
        async def adapters() -> StreamingResponse:
            return StreamingResponse(endless())

        router = APIRouter()
        router.add_api_route("/v1/adapters", adapters, methods=["GET"])
        return [router]

    async def start(self) -> None:
        await self.starts.wait()

    def subscriptions(self) -> Sequence[Subscription]:
        return []

    def trouble(self) -> str | None:
        return None

    async def stop(self) -> None:
        self.stopping.set()
        await self.stops.wait()


async def answered(client: httpx.AsyncClient, path: str, status: int) -> httpx.Response:
    """The answer, once it has that status."""

    async def try_once() -> httpx.Response | None:
        try:
            answer = await client.get(path)
        except httpx.ConnectError:
            return None
        return answer if answer.status_code == status else None

    return await until(try_once, f"{status} from {path}")


async def test_health_answers_from_the_start_to_the_end_and_the_api_in_between(tmp_path: Path) -> None:
    service, port = Slow(), free_port()
    runner = Runner(service, MemoryBus(fleet_topology(("small",))), FleetSettings(logs_dir=tmp_path), port)
    running = asyncio.create_task(runner.run())

    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        assert (await answered(client, "/healthz", 200)).json() == {"service": "agent", "status": "ok"}
        assert (await client.get("/readyz")).json()["reason"] == "starting"
        for path, status in (("/healthz", 200), ("/readyz", 503)):
            asked, head = await client.get(path), await client.head(path)
            assert (head.status_code, head.content) == (status, b"")
            assert head.headers["content-length"] == str(len(asked.content))
        early = await client.get("/v1/adapters")

        service.starts.set()
        await answered(client, "/readyz", 200)
        async with client.stream("GET", "/v1/adapters") as stream:
            assert stream.status_code == 200
            os.kill(os.getpid(), signal.SIGTERM)
            await service.stopping.wait()
            assert (await client.get("/healthz")).status_code == 200
            late = await client.get("/v1/adapters")
            service.stops.set()
            async with asyncio.timeout(30):
                await running

    assert [(one.status_code, one.json()["detail"]) for one in (early, late)] == [(503, "starting"), (503, "draining")]
    assert all("retry-after" in one.headers for one in (early, late))


async def test_beyond_loopback_without_keys_it_ends_before_anything_listens() -> None:
    port = free_port()
    settings = FleetSettings(http_host="0.0.0.0")

    with pytest.raises(SettingsError, match="RATCHET_API_PUBLIC_KEYS"):
        await Runner(Slow(), MemoryBus(fleet_topology(("small",))), settings, port).run()

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
