"""Money in double entry: every amount goes from one account of a job to another, so all accounts sum to nothing.

A job has three accounts. `available` begins at 0 and goes below it, `reserved` is what released tasks may cost at most,
`spent` is what tasks cost. A task's release reserves; its end settles: what it cost is spent, the rest goes back. One
that came to nothing costs nothing. The columns of a job hold the balances; the transfers can rebuild them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Table,
    bindparam,
    false,
    func,
    insert,
    select,
    true,
    union_all,
    update,
)

from ratchet.service.prices import AgentPrices, cost
from schemas.messages.result import Result, TaskUsage
from services.manager.tables import IS_HELD, USED, daily_usage, jobs, quotas, transfers, usage

AVAILABLE, RESERVED, SPENT = "available", "reserved", "spent"
LIMITS = ("open_tasks", "tasks_at_once", "tokens_a_day", "budget", "bytes")
NOTHING = TaskUsage(prompt_tokens=0, sampled_tokens=0)


_QUOTAS = select(quotas).where(quotas.c.tenant.in_(bindparam("tenants", expanding=True)))
_TOKENS = daily_usage.c.prompt_tokens + daily_usage.c.sampled_tokens
_USES = [
    (
        update(table)
        .where(*(column == bindparam(f"its_{column.name}") for column in table.primary_key))
        .values({name: table.c[name] + bindparam(f"more_{name}") for name in USED}),
        insert(table),
    )
    for table in (usage, daily_usage)
]
"""Add to a row, and make it, of each of the two tables."""


class Charge(NamedTuple):
    """A task whose reservation is made, or settled."""

    n: int
    attempt: int
    reserved: int
    spent: int = 0
    usage: TaskUsage = NOTHING


class Quota(NamedTuple):
    """A tenant's limits, None: no limit; and what it has used of them."""

    weight: int = 1
    open_tasks: int | None = None
    tasks_at_once: int | None = None
    tokens_a_day: int | None = None
    budget: int | None = None
    bytes: int | None = None
    is_open: int = 0
    released: int = 0
    bytes_kept: int = 0
    tokens_today: int = 0
    reserved: int = 0
    spent: int = 0

    @property
    def left(self) -> int | None:
        """Micro-units that may still be reserved."""
        return None if self.budget is None else self.budget - self.reserved - self.spent

    @property
    def used(self) -> dict[str, float]:
        """Return the used share of each limit that there is."""
        limits = {
            "open_tasks": (self.is_open, self.open_tasks),
            "tokens_a_day": (self.tokens_today, self.tokens_a_day),
            "budget": (self.reserved + self.spent, self.budget),
            "bytes": (self.bytes_kept, self.bytes),
        }
        return {name: used / most if most else 1.0 for name, (used, most) in limits.items() if most is not None}

    @property
    def room(self) -> int | None:
        """Tasks that may still be released."""
        return None if self.tasks_at_once is None else max(0, self.tasks_at_once - self.released)

    @property
    def has_tokens(self) -> bool:
        return self.tokens_a_day is None or self.tokens_today < self.tokens_a_day

    def has_bytes(self, more: int = 1) -> bool:
        """Tell whether so many bytes more may be kept."""
        return self.bytes is None or self.bytes_kept + more <= self.bytes


def charge_of(task: Any, result: Result, *, is_run: bool = False) -> Charge:
    """Return what a task that has ended costs, at the prices that held when it was released. A training run
    (`is_run`) costs what was reserved, or nothing."""
    took = result.usage if result.status == "ok" and result.usage is not None else NOTHING
    if task.prices is None:
        return Charge(task.n, task.attempt, 0, 0, took)
    prices = AgentPrices.model_validate_json(task.prices)
    if is_run:
        return Charge(task.n, task.attempt, task.reserved, task.reserved if result.status == "ok" else 0)
    return Charge(task.n, task.attempt, task.reserved, min(task.reserved, cost(took, prices)), took)


def reserve(connection: Connection, job: Row[Any], charges: Iterable[Charge], now: float) -> None:
    """Reserve for tasks of a job. That it may is known (`limits_of`)."""
    if not (charges := list(charges)):
        return
    _transfer(connection, job, now, ((one, AVAILABLE, RESERVED, one.reserved) for one in charges))
    amount = sum(one.reserved for one in charges)
    connection.execute(update(jobs).where(jobs.c.job_id == job.job_id).values(reserved=jobs.c.reserved + amount))


def settle(connection: Connection, job: Row[Any], charges: Iterable[Charge], now: float) -> None:
    """Settle the reservations of tasks that have ended."""
    if not (charges := list(charges)):
        return
    _transfer(connection, job, now, ((one, RESERVED, SPENT, one.spent) for one in charges))
    _transfer(connection, job, now, ((one, RESERVED, AVAILABLE, one.reserved - one.spent) for one in charges))
    reserved, spent = sum(one.reserved for one in charges), sum(one.spent for one in charges)
    if reserved or spent:
        values = {"reserved": jobs.c.reserved - reserved, "spent": jobs.c.spent + spent}
        connection.execute(update(jobs).where(jobs.c.job_id == job.job_id).values(values))
    _use(connection, job, charges, now)


def rebuilt(connection: Connection) -> dict[str, tuple[int, int]]:
    """Return of each job what is reserved and spent, by its transfers alone."""
    moved = union_all(
        select(transfers.c.job_id, transfers.c.target.label("account"), transfers.c.amount),
        select(transfers.c.job_id, transfers.c.source.label("account"), -transfers.c.amount),
    ).subquery()
    query = select(moved.c.job_id, moved.c.account, func.sum(moved.c.amount)).group_by(moved.c.job_id, moved.c.account)
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for job_id, account, amount in connection.execute(query):
        found[job_id][account] = int(amount)
    return {job_id: (by.get(RESERVED, 0), by.get(SPENT, 0)) for job_id, by in found.items()}


def quotas_of(
    connection: Connection, now: float, tenant: str | None = None, *, with_bytes: bool = True
) -> dict[str, Quota]:
    """Return the quota of each tenant that has one or has jobs, or of this `tenant`.

    `with_bytes`: with those that are kept, a sum over all of its jobs.
    """
    found: dict[str, Quota] = defaultdict(Quota)
    for row in connection.execute(_of(quotas, tenant, select(quotas))):
        found[row.tenant] = Quota(row.weight, *(row._mapping[name] for name in LIMITS))
    columns = {"is_open": jobs.c.waiting + jobs.c.released, "released": jobs.c.released, "reserved": jobs.c.reserved}
    sums: list[tuple[Table, dict[str, ColumnElement[int]], ColumnElement[bool]]] = [
        (jobs, columns, IS_HELD),
        (jobs, {"bytes_kept": jobs.c.bytes}, true() if with_bytes else false()),
        (daily_usage, {"spent": daily_usage.c.spent}, true()),
        (daily_usage, {"tokens_today": _TOKENS}, daily_usage.c.day == day_of(now)),
    ]
    for table, its_columns, condition in sums:
        query = select(table.c.tenant, *(func.sum(column).label(name) for name, column in its_columns.items()))
        for row in connection.execute(_of(table, tenant, query).where(condition).group_by(table.c.tenant)):
            used = {name: int(row._mapping[name] or 0) for name in its_columns}
            found[row.tenant] = found[row.tenant]._replace(**used)
    return dict(found)


def limits_of(connection: Connection, now: float, tenants: Iterable[str]) -> dict[str, Quota]:
    """Return the quota of each of these tenants. What a tenant uses is summed up where a limit of its needs it."""
    found = {tenant: Quota() for tenant in tenants}
    for row in connection.execute(_QUOTAS, {"tenants": list(found)}):
        is_limited = any(row._mapping[name] is not None for name in LIMITS)
        if not is_limited:
            found[row.tenant] = Quota(row.weight)
        else:
            its = quotas_of(connection, now, row.tenant, with_bytes=row.bytes is not None)
            found[row.tenant] = its[row.tenant]
    return found


def no_tokens(tenant: str, quota: Quota, now: float) -> str:
    return (
        f"the tenant {tenant!r} has used {quota.tokens_today:,} of its {quota.tokens_a_day:,} tokens today: "
        f"it goes on at {next_day(now):%Y-%m-%d %H:%M} UTC"
    )


def no_bytes(tenant: str, quota: Quota) -> str:
    return (
        f"{quota.bytes_kept:,} bytes of tasks and results of the tenant {tenant!r} are kept, and it may have "
        f"{quota.bytes:,}: a job's go when it is forgotten (RATCHET_MANAGER_KEEP_DAYS)"
    )


def day_of(now: float) -> str:
    """Return the day, in UTC."""
    return datetime.fromtimestamp(now, UTC).date().isoformat()


def next_day(now: float) -> datetime:
    """Return when the quota of tokens a day begins anew."""
    day = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day + timedelta(days=1)


def _of(table: Any, tenant: str | None, query: Any) -> Any:
    return query if tenant is None else query.where(table.c.tenant == tenant)


def _transfer(connection: Connection, job: Row[Any], now: float, moved: Iterable[tuple[Charge, str, str, int]]) -> None:
    rows: list[Mapping[str, Any]] = [
        {
            "at": now,
            "tenant": job.tenant,
            "job_id": job.job_id,
            "n": one.n,
            "attempt": one.attempt,
            "source": source,
            "target": target,
            "amount": amount,
        }
        for one, source, target, amount in moved
        if amount
    ]
    if rows:
        connection.execute(insert(transfers), rows)


def _use(connection: Connection, job: Row[Any], charges: Iterable[Charge], now: float) -> None:
    """Add to what was used today."""
    used = [one for one in charges if one.usage != NOTHING or one.spent]
    if not used:
        return
    key = {"day": day_of(now), "tenant": job.tenant, "agent_id": job.agent_id, "job_id": job.job_id}
    added = {
        "tasks": len(used),
        "prompt_tokens": sum(one.usage.prompt_tokens for one in used),
        "sampled_tokens": sum(one.usage.sampled_tokens for one in used),
        "spent": sum(one.spent for one in used),
    }
    of_day = {f"its_{name}": value for name, value in key.items()} | {f"more_{name}": n for name, n in added.items()}
    for add, make in _USES:
        if not connection.execute(add, of_day).rowcount:
            connection.execute(make, key | added)
