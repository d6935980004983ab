"""The manager's worker: its routes, its dispatcher, and a look at the database every few seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from fastapi import APIRouter

from ratchet.client import AsyncFleet
from ratchet.runtime.runner import Subscription
from ratchet.service.errors import RatchetError
from ratchet.service.prices import Prices
from services.manager.agents import Agents
from services.manager.api import agents_router, jobs_router, usage_router
from services.manager.database import Database
from services.manager.dispatcher import Dispatcher
from services.manager.jobs import Jobs
from services.manager.settings import ManagerSettings

PING_EVERY_S = 2.0


class ManagerWorker:
    """`connect` makes a client of the fleet."""

    name = "manager"

    def __init__(self, settings: ManagerSettings, database: Database, connect: Callable[[], AsyncFleet]) -> None:
        self._database = database
        prices = None if settings.prices is None else Prices.read(settings.prices)
        self._dispatcher = Dispatcher(settings, prices, database, connect)
        self._jobs = Jobs(settings, prices, database, self._dispatcher.wake)
        self._agents = Agents(settings, prices, database, self._dispatcher.wake)
        self._pinging: asyncio.Task[None] | None = None
        self._away: str | None = None

    def routers(self) -> Sequence[APIRouter]:
        return [jobs_router(self._jobs), usage_router(self._jobs), agents_router(self._agents)]

    async def start(self) -> None:
        await self._database.open()
        self._pinging = asyncio.create_task(self._ping())
        self._dispatcher.start()

    def subscriptions(self) -> Sequence[Subscription]:
        return []

    def trouble(self) -> str | None:
        return self._away or self._database.trouble() or self._dispatcher.trouble()

    async def stop(self) -> None:
        await self._dispatcher.stop()
        if self._pinging is not None:
            self._pinging.cancel()
            await asyncio.gather(self._pinging, return_exceptions=True)
        await self._database.close()

    async def _ping(self) -> None:
        while True:
            try:
                await self._database.ping()
                self._away = None
            except RatchetError as error:
                self._away = str(error)
            await asyncio.sleep(PING_EVERY_S)
