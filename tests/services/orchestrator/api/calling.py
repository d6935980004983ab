"""The API of a house, called in this process: the application as it is served, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx

from ratchet.http.server.application import application
from tests.services.orchestrator.house import House, answered, scored

TEXTS, SCORES = ("worse", "better"), (0.25, 0.75)


@asynccontextmanager
async def api_of(fleet: House) -> AsyncIterator[httpx.AsyncClient]:
    orchestrator = fleet.orchestrator
    app = application("orchestrator", orchestrator.routers(), fleet.settings, orchestrator.trouble)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        yield client


@asynccontextmanager
async def answering(fleet: House, *, after_s: float = 0.0) -> AsyncIterator[None]:
    """Have every task of the agent `small` answered and scored a moment after it was admitted."""

    async def answer() -> None:
        done = 0
        while True:
            for work in (await fleet.work(done + 1))[done:]:
                await asyncio.sleep(after_s)  # real time: what an agent and a scorer take
                await fleet.reward(scored(answered(work, *TEXTS), *SCORES))
                done += 1

    working = asyncio.create_task(answer())
    try:
        yield
    finally:
        working.cancel()
        with suppress(asyncio.CancelledError, TimeoutError):
            await working
