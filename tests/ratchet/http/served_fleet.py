"""The four real services on a real broker, each behind its own HTTP server, all in one thread: for clients of any kind.

The trainer is not started: it records what it is asked for, and trains nothing. Beside them is the orchestrator's
stream of events alone (`urls["events"]`), whose streams end as soon as they have begun.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from ratchet.bus.amqp.rabbit_bus import RabbitBus
from ratchet.http.access.roles import Role
from ratchet.http.server.application import application
from ratchet.runtime.runner import Service
from ratchet.service.settings import FleetSettings
from services.orchestrator.api.events import events_router
from services.orchestrator.observation.event_hub import EventHub
from tests.ratchet.http.access.tokens_for_tests import Mint
from tests.ratchet.http.real_services import NAMES, service_of, settings_of

READY_S = 60.0


class ServedFleet:
    """`urls` by service; every call needs a token of `mint`."""

    def __init__(self, folder: Path, amqp_url: str, namespace: str) -> None:
        self.mint = Mint(folder / "keys")
        self.urls: dict[str, str] = {}
        self._folder = folder
        self._given = {
            "amqp_url": amqp_url,
            "namespace": namespace,
            "api_public_keys": self.mint.keys.jwks,
            "api_requests_per_s": 0,
        }
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end = asyncio.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def token(self, role: Role) -> str:
        return self.mint.good(role, f"a-{role}")

    def start(self) -> None:
        self._thread.start()
        if not self._ready.wait(READY_S) or self._failure:
            raise RuntimeError("the fleet did not start") from self._failure

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            for name in NAMES:
                await self._one(stack, settings_of(name, self._folder, **self._given))
            ending = events_router(EventHub("now", longest_s=0.0))
            settings = settings_of("orchestrator", self._folder, **self._given)
            await self._listen(stack, "events", application("orchestrator", [ending], settings, lambda: None))
            self._ready.set()
            await self._end.wait()

    async def _one(self, stack: AsyncExitStack, settings: FleetSettings) -> None:
        bus = RabbitBus.from_settings(settings, name="served fleet")
        service = service_of(settings, bus)
        app = application(service.name, service.routers(), settings, service.trouble)
        await bus.start()
        stack.push_async_callback(bus.stop, 1.0)
        if service.name != "trainer":
            await self._work(stack, service, bus)
        await self._listen(stack, service.name, app)

    async def _listen(self, stack: AsyncExitStack, name: str, app: FastAPI) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.urls[name] = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(app, http="h11", ws="none", log_config=None, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))

        async def close() -> None:
            server.should_exit = True
            await serving

        stack.push_async_callback(close)

    async def _work(self, stack: AsyncExitStack, service: Service, bus: RabbitBus) -> None:
        await service.start()
        stack.push_async_callback(service.stop)
        for one in service.subscriptions():
            await bus.consume(one.queue, one.handler, prefetch=one.prefetch)


@contextmanager
def served_fleet(folder: Path, amqp_url: str) -> Iterator[ServedFleet]:
    fleet = ServedFleet(folder, amqp_url, f"t{uuid.uuid4().hex[:8]}.")
    fleet.start()
    try:
        yield fleet
    finally:
        fleet.stop()
