"""Agents as the routes see them: whose they are, and each act on one in a transaction of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection

from ratchet.http.access.roles import Caller
from ratchet.http.problem import Problem
from ratchet.service.errors import NotFound
from ratchet.service.prices import Prices
from schemas.api.agents import AgentChange, AgentMetrics, AgentsPrograms, NewAgent, RegisteredAgent, RunnerReport
from services.manager import agent_store
from services.manager.database import Database
from services.manager.jobs import DEFAULT_TENANT
from services.manager.settings import ManagerSettings

T = TypeVar("T")


class Agents:
    """`wake` tells the dispatcher that an agent has changed. Every method raises StorageUnavailable."""

    def __init__(
        self, settings: ManagerSettings, prices: Prices | None, database: Database, wake: Callable[[], None]
    ) -> None:
        self._fleet = settings.agents
        self._prices = {} if prices is None else prices.agents
        self._database = database
        self._wake = wake

    async def add(self, asked: NewAgent, caller: Caller) -> RegisteredAgent:
        """Raises NotFound for a model that the fleet does not have, Problem."""
        if caller.tenant != DEFAULT_TENANT:
            raise Problem(403, "Not for tenants", "agents are for the tenant `default` so far", "tenant")
        model = asked.model or self._fleet[0]
        if model not in self._fleet:
            raise NotFound(
                f"agent {model!r} is not of this fleet ({', '.join(self._fleet)}), so it has no model to use"
            )
        if asked.name in self._fleet:
            raise Problem(409, "Another agent", f"{asked.name!r} is one of the fleet's own agents", "other-agent")
        owner = caller.owner if caller.own_only else None
        prices = self._prices.get(asked.name) or self._prices.get(model)
        return await self._database.write(
            lambda connection: agent_store.add(connection, asked, model, owner, prices, time.time())
        )

    async def page(self, caller: Caller, after: str, limit: int) -> list[RegisteredAgent]:
        if caller.tenant != DEFAULT_TENANT:
            return []
        return await self._database.look(
            lambda connection: agent_store.page(connection, caller, after, limit, time.time())
        )

    async def get(self, name: str, caller: Caller) -> RegisteredAgent:
        return await self._look(name, caller, lambda connection: agent_store.get(connection, name, time.time()))

    async def metrics(self, name: str, caller: Caller) -> AgentMetrics:
        return await self._look(name, caller, lambda connection: agent_store.metrics(connection, name, time.time()))

    async def change(self, name: str, wanted: AgentChange, caller: Caller) -> RegisteredAgent:
        return await self._change(
            name,
            caller,
            lambda connection: agent_store.change(connection, name, wanted, self._prices, time.time()),
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
            _check_tenant(name, caller)
            agent_store.check_visible(connection, name, caller, change=False)
            return work(connection)

        return await self._database.look(check_and_work)

    async def _change(
        self, name: str, caller: Caller, work: Callable[[Connection], RegisteredAgent]
    ) -> RegisteredAgent:
        def check_and_work(connection: Connection) -> RegisteredAgent:
            _check_tenant(name, caller)
            agent_store.check_visible(connection, name, caller, change=True)
            return work(connection)

        changed = await self._database.write(check_and_work)
        self._wake()
        return changed


def _check_tenant(name: str, caller: Caller) -> None:
    """Raises Problem for a caller of another tenant than `default`, whose agents alone there are."""
    if caller.is_bound and caller.tenant != DEFAULT_TENANT:
        raise agent_store.no_such_agent(name)
