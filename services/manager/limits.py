"""Refusals of jobs that a budget or a quota can't take: they name the limit, the figures, and when it resets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, bindparam, func, insert, select, update

from ratchet.http.problem import Problem
from ratchet.service.prices import AgentPrices, micros, most_cost, units
from schemas.api.jobs import TenantQuota, TenantUse, UsageKey, UsageRow
from services.manager.ledger import Quota, limits_of, next_day, no_bytes, no_tokens, quotas_of
from services.manager.submission import JobTerms, NewTask, read_body
from services.manager.tables import USED, daily_usage, jobs, quotas, usage

_LOCKED = select(quotas.c.tenant).where(quotas.c.tenant == bindparam("its")).with_for_update()


def check_budget(new: Iterable[NewTask], budget: int, job: JobTerms, prices: AgentPrices | None) -> None:
    """Raises Problem for a budget that can't be held, or that can't pay for one of the tasks."""
    if prices is None:
        why = f"the manager has no prices of agent {job.agent_id!r}, so it can hold no budget (RATCHET_PRICES)"
        raise Problem(422, "No prices", why, "no-prices")
    for one in new:
        if (most := most_cost(read_body(one.body, job.kind, prices), prices)) > budget:
            why = f"line {one.n + 1} may cost up to {units(most):f}, and the job's budget is {units(budget):f}"
            raise Problem(402, "Budget too small", why, "budget")


def check_quota(connection: Connection, tenant: str, tasks: Sequence[NewTask], now: float) -> None:
    """Raises Problem for a tenant that may have no further tasks."""
    quota, size = check_open_tasks(connection, tenant, len(tasks), now), size_of(tasks)
    if not quota.has_bytes(size):
        why = f"these tasks have {size:,} bytes. {no_bytes(tenant, quota)}"
        raise Problem(429, "Too many bytes", why, "bytes")
    if not quota.has_tokens:
        wait = {"Retry-After": str(int(next_day(now).timestamp() - now) + 1)}
        raise Problem(429, "No tokens left today", no_tokens(tenant, quota, now), "tokens", wait)
    if quota.budget is not None and quota.spent >= quota.budget:  # what is only reserved may come back: a job waits
        why = (
            f"the tenant {tenant!r} has spent {units(quota.spent):f} of its budget of {units(quota.budget):f}. "
            f"It does not reset: an operator raises it"
        )
        raise Problem(402, "Budget is used up", why, "tenant-budget")


def check_open_tasks(connection: Connection, tenant: str, new: int, now: float) -> Quota:
    """Return the tenant's quota, which no other manager looks at until this transaction ends. Raises Problem."""
    connection.execute(_LOCKED, {"its": tenant})
    quota = limits_of(connection, now, [tenant])[tenant]
    if quota.open_tasks is not None and quota.is_open + new > quota.open_tasks:
        why = (
            f"the tenant {tenant!r} has {quota.is_open:,} open tasks and may have {quota.open_tasks:,}; these are "
            f"{new:,} more: submit them when some have ended"
        )
        raise Problem(429, "Too many open tasks", why, "open-tasks")
    return quota


def size_of(tasks: Iterable[NewTask]) -> int:
    """Return the bytes that are kept of them."""
    return sum(len(one.body.encode()) for one in tasks)


def set_quota(connection: Connection, tenant: str, given: TenantQuota, now: float) -> TenantUse:
    budget = None if given.budget is None else micros(given.budget)
    values = {
        **given.model_dump(include={"weight", "open_tasks", "tasks_at_once", "tokens_a_day", "bytes"}),
        "budget": budget,
    }
    if not connection.execute(update(quotas).where(quotas.c.tenant == tenant).values(values)).rowcount:
        connection.execute(insert(quotas).values(tenant=tenant, **values))
    return tenant_use(connection, tenant, now)


def tenant_use(connection: Connection, tenant: str, now: float) -> TenantUse:
    quota = quotas_of(connection, now, tenant).get(tenant, Quota())
    amounts = {"reserved": units(quota.reserved), "spent": units(quota.spent)}
    budget = None if quota.budget is None else units(quota.budget)
    names = ("weight", "open_tasks", "tasks_at_once", "tokens_a_day", "bytes", "is_open", "bytes_kept", "tokens_today")
    same = {name: getattr(quota, name) for name in names}
    return TenantUse(tenant=tenant, tokens_reset_at=next_day(now), budget=budget, **same, **amounts)


def usage_by(
    connection: Connection, by: UsageKey, limit: int, tenant: str | None, owner: str | None = None
) -> list[UsageRow]:
    """Return what was used, the newest days first, or the agents and jobs that cost most.

    By one `tenant` where it is given; by the jobs of an `owner`, of those that are kept, where one is given.
    """
    table = usage if by == "job" or owner is not None else daily_usage
    key = table.c[{"agent": "agent_id", "job": "job_id", "day": "day"}[by]]
    sums = [func.sum(table.c[name]).label(name) for name in USED]
    order = key.desc() if by == "day" else func.sum(table.c.spent).desc()
    query = select(key.label("key"), *sums).group_by(key).order_by(order, key).limit(limit)
    query = query if tenant is None else query.where(table.c.tenant == tenant)
    if owner is not None:
        query = query.where(usage.c.job_id.in_(select(jobs.c.job_id).where(jobs.c.owner == owner)))
    return [
        UsageRow(
            key=row.key,
            tasks=int(row.tasks),
            prompt_tokens=int(row.prompt_tokens),
            sampled_tokens=int(row.sampled_tokens),
            spent=units(int(row.spent)),
        )
        for row in connection.execute(query)
    ]
