"""Jobs as the routes see them: whose they are, and each act on one in a transaction of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from decimal import Decimal

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from ratchet.http.access.roles import Caller, Role
from ratchet.http.problem import Problem
from ratchet.logs.tenants import DEFAULT, AgentTenants, own_id
from ratchet.service.errors import NotFound
from ratchet.service.prices import AgentPrices, Prices, micros
from ratchet.service.settings import pairs
from schemas.api.agents import AgentKind
from schemas.api.jobs import (
    Job,
    JobDetail,
    JobKind,
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
from services.manager.agent_store import Registration
from services.manager.database import Database
from services.manager.settings import ManagerSettings
from services.manager.submission import BAD_LINE, JobTerms

DAY_S = 86_400.0
FEW = 100
"""Tasks that are stored in a few milliseconds."""


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
        self._tenants = AgentTenants(pairs(settings.agent_tenants), settings.shared_learning)

    async def submit(self, asked: JobSubmission, caller: Caller) -> tuple[Job, bool]:
        """Return the job, and whether it is new. Raises NotFound for an agent that there is not, Problem."""
        own = [agent for agent in self._settings.agents if self._tenants.may_use(caller.tenant, agent)]
        agent_id = asked.agent_id or next(iter(own), self._settings.agents[0])
        tenant = tenant_of(caller, self._settings)

        def work(connection: Connection) -> tuple[Job, bool]:
            now = time.time()
            prices, until, registered = self._prices.get(agent_id), self._default_deadline(now), None
            if agent_id not in own:
                registered = agent_store.find_usable(connection, agent_id, caller, now)
                if registered is None:
                    there = ", ".join(own) or "none for this tenant"
                    raise NotFound(f"agent {agent_id!r} is not of this fleet ({there}), and not registered with it")
                prices = registered.find_prices(self._prices)
            if asked.kind is JobKind.TRAINING:
                check_training(caller, registered)
            needs_approval = registered is not None and registered.needs_approval
            return job_store.submit(
                connection, asked, agent_id, tenant, caller, prices, now, until, needs_approval=needs_approval
            )

        try:
            job, is_new = await self._database.write(work, brief=len(asked.tasks) <= FEW)
        except IntegrityError:  # another manager has just taken a job by this id
            job, is_new = await self._database.write(work)
        self._wake()
        return caller.show(job), is_new

    async def add_tasks(self, job_id: str, given: MoreTasks, caller: Caller) -> Job:
        """A line that is no task ends the whole job: raises Problem."""
        try:
            return await self._change(
                job_id, caller, lambda c, key, now: job_store.add_tasks(c, key, given, self._prices_of, now)
            )
        except Problem as problem:
            if problem.type == BAD_LINE:
                key = caller.key_of(job_id)
                await self._database.write(lambda connection: job_store.drop_loading(connection, key))
            raise

    async def page(self, caller: Caller, state: JobState | None, before: str | None, limit: int) -> list[Job]:
        key = None if before is None else caller.key_of(before)
        found = await self._database.look(lambda connection: job_store.page(connection, caller, state, key, limit))
        return [caller.show(one) for one in found]

    async def get(self, job_id: str, caller: Caller) -> JobDetail:
        key = caller.key_of(job_id)
        found = await self._database.find(lambda c: job_store.get(c, key, caller, time.time()))
        if found.failed or found.expired:
            failures = await self._database.look(lambda c: job_store.failures(c, key))
            found = found.model_copy(update={"failures": failures})
        return caller.show(found)

    async def results(self, job_id: str, caller: Caller, after: int, limit: int) -> tuple[list[JobResult], bool]:
        """Return those after the place `after`, and whether there may be more."""
        key = caller.key_of(job_id)

        def check_and_read(connection: Connection) -> tuple[list[JobResult], bool]:
            job_store.check_visible(connection, key, caller)
            return job_store.results(connection, key, after, limit)

        found, has_more = await self._database.look(check_and_read)
        return [caller.show(one) for one in found], has_more

    async def pause(self, job_id: str, caller: Caller) -> Job:
        return await self._change(job_id, caller, job_store.pause)

    async def resume(self, job_id: str, budget: Decimal | None, caller: Caller) -> Job:
        """Raises Problem for a budget where the manager has no prices of the job's agent."""
        amount = None if budget is None else micros(budget)
        may_approve = caller.role is Role.OPERATOR

        def work(connection: Connection, key: str, now: float) -> Job:
            job = job_store.resume(connection, key, amount, now, may_approve=may_approve)
            if amount is not None:
                terms = JobTerms(job.agent_id, job.kind, job.samples, job.priority)
                limits.check_budget((), amount, terms, self._prices_of(connection, job.agent_id))
            return job

        return await self._change(job_id, caller, work)

    async def cancel(self, job_id: str, caller: Caller) -> Job:
        return await self._change(job_id, caller, job_store.cancel)

    async def rerun(self, job_id: str, caller: Caller) -> Job:
        def work(connection: Connection, key: str, now: float) -> Job:
            job = job_store.rerun(connection, key, now, self._default_deadline(now))
            usable = job.agent_id in self._settings.agents or agent_store.find_usable(
                connection, job.agent_id, caller, now
            )
            if not usable:
                raise NotFound(f"agent {job.agent_id!r}, whose job {job_id!r} was, is not there any more")
            return job

        return await self._change(job_id, caller, work)

    async def set_quota(self, tenant: str, given: TenantQuota) -> TenantUse:
        use = await self._database.write(lambda connection: limits.set_quota(connection, tenant, given, time.time()))
        self._wake()
        return use

    async def tenant_use(self, tenant: str, caller: Caller) -> TenantUse:
        """Raises Problem 404 for a tenant that is not the caller's."""
        if caller.is_bound and tenant != tenant_of(caller, self._settings):
            raise Problem(404, "No such tenant", f"there is no tenant {tenant!r}", "unknown-tenant")
        return await self._database.look(lambda connection: limits.tenant_use(connection, tenant, time.time()))

    async def usage(self, by: UsageKey, limit: int, caller: Caller) -> Usage:
        """Return all that was used, what the caller's tenant used, or what those of its jobs used that are its own."""
        tenant = tenant_of(caller, self._settings) if caller.is_bound else None
        owner = caller.owner if caller.own_only else None
        rows = await self._database.look(lambda connection: limits.usage_by(connection, by, limit, tenant, owner))
        own = [row.model_copy(update={"key": own_id(row.key)}) for row in rows] if caller.is_bound else rows
        return Usage(currency=self._currency, items=own)

    async def _change(self, job_id: str, caller: Caller, work: Callable[[Connection, str, float], Job]) -> Job:
        key = caller.key_of(job_id)

        def check_and_work(connection: Connection) -> Job:
            job_store.check_visible(connection, key, caller)
            return work(connection, key, time.time())

        job = await self._database.write(check_and_work)
        self._wake()
        return caller.show(job)

    def _prices_of(self, connection: Connection, agent_id: str) -> AgentPrices | None:
        """Return what the agent's tokens cost: its own prices, or those of the model that it uses."""
        registered = agent_store.registrations(connection, time.time(), agent_id).get(agent_id)
        return self._prices.get(agent_id) if registered is None else registered.find_prices(self._prices)

    def _default_deadline(self, now: float) -> float:
        return now + self._settings.manager_job_days * DAY_S


def check_training(caller: Caller, registered: Registration | None) -> None:
    """Raises Problem for who may not start a training, and for an agent that teaches nothing."""
    if caller.role is not Role.OPERATOR:
        raise Problem(403, "Not allowed", "a training changes what others are answered by: ask an operator", "role")
    if registered is not None and registered.kind is AgentKind.EVALUATION:
        why = f"agent {registered.name!r} is for evaluation: its tasks teach nothing"
        raise Problem(422, "Not a job", why, "bad-job")


def tenant_of(caller: Caller, settings: ManagerSettings) -> str:
    """Return the tenant that a caller's jobs count to: of its token, or its own name where that has none.

    Raises Problem for a name that is a tenant's.
    """
    if caller.tenant != DEFAULT:
        return caller.tenant
    if caller.owner in settings.tenants:
        detail = f"a tenant is called {caller.owner!r}, too: have a token with another name, or with that tenant"
        raise Problem(403, "Name of a tenant", detail, "tenant")
    return caller.owner or DEFAULT
