"""Agents as the routes see them: whose they are, and each act on one in a transaction of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection

from ratchet.http.access.roles import Caller
from ratchet.http.problem import Problem
from ratchet.logs.tenants import AgentTenants
from ratchet.service.errors import NotFound
from ratchet.service.prices import Prices
from ratchet.service.settings import pairs
from schemas.api.agents import AgentChange, AgentMetrics, AgentsPrograms, NewAgent, RegisteredAgent, RunnerReport
from services.manager import agent_store
from services.manager.database import Database
from services.manager.jobs import tenant_of
from services.manager.settings import ManagerSettings

T = TypeVar("T")


class Agents:
    """`wake` tells the dispatcher that an agent has changed. Every method raises StorageUnavailable."""

    def __init__(
        self, settings: ManagerSettings, prices: Prices | None, database: Database, wake: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._fleet = settings.agents
        self._tenants = AgentTenants(pairs(settings.agent_tenants), settings.shared_learning)
        self._prices = {} if prices is None else prices.agents
        self._database = database
        self._wake = wake

    async def add(self, asked: NewAgent, caller: Caller) -> RegisteredAgent:
        """Raises NotFound for a model that the fleet does not have, Problem."""
        there = [agent for agent in self._fleet if self._tenants.may_use(caller.tenant, agent)]
        model = asked.model or next(iter(there), self._fleet[0])
        if model not in there:
            raise NotFound(f"agent {model!r} is not of this fleet ({', '.join(there)}), so it has no model to use")
        if asked.name in self._fleet:
            raise Problem(409, "Another agent", f"{asked.name!r} is one of the fleet's own agents", "other-agent")
        prices = self._prices.get(asked.name) or self._prices.get(model)
        return await self._database.write(
            lambda connection: agent_store.add(connection, asked, model, caller, prices, time.time())
        )

    async def page(self, caller: Caller, after: str, limit: int) -> list[RegisteredAgent]:
        return await self._database.look(
            lambda connection: agent_store.page(connection, caller, after, limit, time.time())
        )

    async def get(self, name: str, caller: Caller) -> RegisteredAgent:
        return await self._look(name, caller, lambda connection: agent_store.get(connection, name, time.time()))

    async def metrics(self, name: str, caller: Caller) -> AgentMetrics:
        """Return its figures: to who is bound to a tenant, those of the tenant's jobs; to a submitter, of its own."""
        tenant = tenant_of(caller, self._settings) if caller.is_bound else None
        owner = caller.owner if caller.own_only else None
        return await self._look(name, caller, lambda c: agent_store.metrics(c, name, tenant, owner, time.time()))

    async def change(self, name: str, wanted: AgentChange, caller: Caller) -> RegisteredAgent:
        return await self._change(
            name,
            caller,
            lambda connection: agent_store.change(connection, name, wanted, self._prices, caller, time.time()),
        )

    async def retire(self, name: str, caller: Caller) -> RegisteredAgent:
        return await self._change(name, caller, lambda connection: agent_store.retire(connection, name, time.time()))

    async def report(self, report: RunnerReport) -> AgentsPrograms:
        """Return the programs that a runner is to have."""
        found = await self._database.write(lambda connection: agent_store.take_report(connection, report, time.time()))
        if report.agents:
            self._wake()
        return AgentsPrograms(items=tuple(found))

    async def _look(self, name: str, caller: Caller, work: Callable[[Connection], T]) -> T:
        def check_and_work(connection: Connection) -> T:
            agent_store.check_visible(connection, name, caller, change=False)
            return work(connection)

        return await self._database.look(check_and_work)

    async def _change(
        self, name: str, caller: Caller, work: Callable[[Connection], RegisteredAgent]
    ) -> RegisteredAgent:
        def check_and_work(connection: Connection) -> RegisteredAgent:
            agent_store.check_visible(connection, name, caller, change=True)
            return work(connection)

        changed = await self._database.write(check_and_work)
        self._wake()
        return changed
