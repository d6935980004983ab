"""Jobs as the routes see them: whose they are, and each act on one in a transaction of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TypeVar

from sqlalchemy import Connection

from ratchet.http.access.roles import Caller, Role
from ratchet.http.problem import Problem
from ratchet.service.errors import NotFound
from ratchet.service.prices import AgentPrices, Prices, micros
from schemas.api.jobs import (
    Job,
    JobDetail,
    JobResult,
    JobState,
    JobSubmission,
    MoreTasks,
    TenantQuota,
    TenantUse,
    Usage,
    UsageKey,
)
from services.manager import agent_store, job_store, limits
from services.manager.database import Database
from services.manager.settings import ManagerSettings
from services.manager.submission import BAD_LINE

T = TypeVar("T")

DAY_S = 86_400.0
DEFAULT_TENANT = "default"


class Jobs:
    """`wake` tells the dispatcher that a job has changed. Every method raises StorageUnavailable."""

    def __init__(
        self, settings: ManagerSettings, prices: Prices | None, database: Database, wake: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._prices: Mapping[str, AgentPrices] = {} if prices is None else prices.agents
        self._currency = None if prices is None else prices.currency
        self._database = database
        self._wake = wake

    async def submit(self, asked: JobSubmission, caller: Caller) -> tuple[Job, bool]:
        """Return the job, and whether it is new. Raises NotFound for an agent that there is not, Problem."""
        if caller.tenant != DEFAULT_TENANT:
            detail = "jobs are for the tenant `default` so far: submit tasks one by one (POST /v1/tasks)"
            raise Problem(403, "Not for tenants", detail, "tenant")
        agent_id = asked.agent_id or self._settings.agents[0]
        tenant = caller.owner or DEFAULT_TENANT

        def work(connection: Connection) -> tuple[Job, bool]:
            now = time.time()
            prices, until, registered = self._prices.get(agent_id), self._default_deadline(now), None
            if agent_id not in self._settings.agents:
                registered = agent_store.find_usable(connection, agent_id, caller, now)
                if registered is None:
                    own = ", ".join(self._settings.agents)
                    raise NotFound(f"agent {agent_id!r} is not of this fleet ({own}), and not registered with it")
                prices = prices or self._prices.get(registered.model)
            needs_approval = registered is not None and registered.needs_approval
            return job_store.submit(
                connection, asked, agent_id, tenant, caller.owner, prices, now, until, needs_approval=needs_approval
            )

        job = await self._database.write(work)
        self._wake()
        return job

    async def add_tasks(self, job_id: str, given: MoreTasks, caller: Caller) -> Job:
        """A line that is no task ends the whole job: raises Problem."""
        try:
            return await self._change(
                job_id, caller, lambda c, now: job_store.add_tasks(c, job_id, given, self._prices_of, now)
            )
        except Problem as problem:
            if problem.type == BAD_LINE:
                await self._database.write(lambda connection: job_store.drop_loading(connection, job_id))
            raise

    async def page(self, caller: Caller, state: JobState | None, before: str | None, limit: int) -> list[Job]:
        if caller.tenant != DEFAULT_TENANT:
            return []
        owner = caller.owner if caller.own_only else None
        return await self._database.look(lambda connection: job_store.page(connection, owner, state, before, limit))

    async def get(self, job_id: str, caller: Caller) -> JobDetail:
        return await self._look(job_id, caller, lambda connection: job_store.get(connection, job_id, time.time()))

    async def results(self, job_id: str, caller: Caller, after: int, limit: int) -> list[JobResult]:
        return await self._look(job_id, caller, lambda connection: job_store.results(connection, job_id, after, limit))

    async def pause(self, job_id: str, caller: Caller) -> Job:
        return await self._change(job_id, caller, lambda c, now: job_store.pause(c, job_id, now))

    async def resume(self, job_id: str, budget: Decimal | None, caller: Caller) -> Job:
        """Raises Problem for a budget where the manager has no prices."""
        if budget is not None and not self._prices:
            raise Problem(422, "No prices", "the manager has no prices (RATCHET_PRICES)", "no-prices")
        amount = None if budget is None else micros(budget)
        may_approve = caller.role is Role.OPERATOR
        return await self._change(
            job_id, caller, lambda c, now: job_store.resume(c, job_id, amount, now, may_approve=may_approve)
        )

    async def cancel(self, job_id: str, caller: Caller) -> Job:
        return await self._change(job_id, caller, lambda c, now: job_store.cancel(c, job_id, now))

    async def rerun(self, job_id: str, caller: Caller) -> Job:
        return await self._change(
            job_id, caller, lambda c, now: job_store.rerun(c, job_id, now, self._default_deadline(now))
        )

    async def set_quota(self, tenant: str, given: TenantQuota) -> TenantUse:
        use = await self._database.write(lambda connection: limits.set_quota(connection, tenant, given, time.time()))
        self._wake()
        return use

    async def tenant_use(self, tenant: str) -> TenantUse:
        return await self._database.look(lambda connection: limits.tenant_use(connection, tenant, time.time()))

    async def usage(self, by: UsageKey, limit: int, caller: Caller) -> Usage:
        """Return all that was used, or what a submitter used; of other tenants there is nothing yet."""
        if caller.tenant != DEFAULT_TENANT:
            return Usage(currency=self._currency, items=[])
        tenant = (caller.owner or DEFAULT_TENANT) if caller.own_only else None
        rows = await self._database.look(lambda connection: limits.usage_by(connection, by, limit, tenant))
        return Usage(currency=self._currency, items=rows)

    async def _look(self, job_id: str, caller: Caller, work: Callable[[Connection], T]) -> T:
        def check_and_work(connection: Connection) -> T:
            job_store.check_visible(connection, job_id, caller)
            return work(connection)

        return await self._database.look(check_and_work)

    async def _change(self, job_id: str, caller: Caller, work: Callable[[Connection, float], Job]) -> Job:
        def check_and_work(connection: Connection) -> Job:
            job_store.check_visible(connection, job_id, caller)
            return work(connection, time.time())

        job = await self._database.write(check_and_work)
        self._wake()
        return job

    def _prices_of(self, connection: Connection, agent_id: str) -> AgentPrices | None:
        """Return what the agent's tokens cost: its own prices, or those of the model that it uses."""
        model = agent_store.model_of(connection, agent_id)
        return self._prices.get(agent_id) or (self._prices.get(model) if model else None)

    def _default_deadline(self, now: float) -> float:
        return now + self._settings.manager_job_days * DAY_S
