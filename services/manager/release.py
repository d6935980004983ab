"""The acts of the fleet on jobs, each a transaction: release tasks, store Results, expire what is due."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Double, Row, Update, and_, bindparam, case, func, select, update

from ratchet.service.prices import AgentPrices, most_cost, units
from schemas.api.jobs import JobKind, JobState, TaskState
from schemas.messages.result import Result
from schemas.messages.task import Task
from schemas.messages.training import TrainRequest
from services.manager.agent_store import forget_old, registrations
from services.manager.job_store import LOADING_S, OPEN, drop, end_waiting, forget
from services.manager.ledger import Charge, charge_of, limits_of, no_bytes, no_tokens, reserve, settle
from services.manager.order import FairOrder, Lanes, Waiting
from services.manager.submission import Route, parse_task_id, task_id_of, task_to_release
from services.manager.tables import IS_HELD, jobs, tasks

GRACE_S = 300.0
"""Seconds after its deadline for which the answer to a released task is waited for: the fleet says that it expired."""
FORGOTTEN_AT_ONCE = 200
"""Jobs that are forgotten in one transaction, of which there is one a second: each takes half a millisecond."""
ENDED_AT_ONCE = 10_000
"""Waiting tasks that are ended, and tasks of old jobs that are forgotten, in one transaction, of which there is one a
second: a thousand take 50 ms. One job is forgotten as a whole."""
RELEASED_AT_ONCE = 128
"""Tasks of an agent that are released in one transaction, which holds up calls meanwhile."""
STORED_AT_ONCE = 128
"""Results that are stored in one transaction."""


_LANE = case((jobs.c.kind == JobKind.TRAINING, jobs.c.agent_id + f"/{JobKind.TRAINING}"), else_=jobs.c.agent_id)
"""The window that a job's tasks go through."""
_RELEASED = select(_LANE.label("lane"), func.sum(jobs.c.released)).where(jobs.c.released > 0).group_by("lane")
_RANK = jobs.c.priority + (bindparam("now", type_=Double) - jobs.c.served_at) / bindparam("ageing_s", type_=Double)
_IN_TURN = (_RANK.desc(), jobs.c.served_at, jobs.c.job_id)
_CAN_GO_ON = jobs.c.state.in_((JobState.QUEUED, JobState.RUNNING)) & (jobs.c.waiting > 0)
_IN_LINE = (
    select(jobs.c.job_id, func.row_number().over(partition_by=(_LANE, jobs.c.tenant), order_by=_IN_TURN).label("n"))
    .where(_CAN_GO_ON)
    .where(_LANE.not_in(bindparam("full", expanding=True)))
    .subquery()
)
_NEXT_JOBS = (
    select(jobs, _LANE.label("lane"))
    .where(jobs.c.job_id.in_(select(_IN_LINE.c.job_id).where(_IN_LINE.c.n <= bindparam("most"))))
    .where(_CAN_GO_ON)  # PostgreSQL looks at this again for a row that it waited for: it may be paused by now
    .with_for_update()
)
"""The jobs that may have a turn now: of each tenant, for each window with room, as many as the least window has tasks,
which are more than are released at once."""
_OF_JOB = tasks.c.job_id == bindparam("job")
_OF_TASK = _OF_JOB & (tasks.c.n == bindparam("number"))
_WAITING_TASKS = (
    select(tasks.c.n, tasks.c.attempt, tasks.c.body)
    .where(_OF_JOB, tasks.c.state == TaskState.WAITING)
    .order_by(tasks.c.n)
    .limit(bindparam("most"))
)
_MARK_RELEASED = (
    update(tasks)
    .where(_OF_TASK)
    .values(state=TaskState.RELEASED, reserved=bindparam("most"), prices=bindparam("at_prices"))
)
_COUNT_RELEASED = (
    update(jobs)
    .where(jobs.c.job_id == bindparam("job"))
    .values(
        waiting=jobs.c.waiting - bindparam("count"),
        released=jobs.c.released + bindparam("count"),
        served_at=bindparam("now"),
        state=JobState.RUNNING,
        changed_at=bindparam("since"),
        reason=JobState.RUNNING.sentence,
    )
)
_JOBS = (
    select(jobs).where(jobs.c.job_id.in_(bindparam("jobs", expanding=True))).order_by(jobs.c.job_id).with_for_update()
)
_OPEN = select(tasks.c.job_id, tasks.c.n, tasks.c.attempt, tasks.c.reserved, tasks.c.prices).where(
    tasks.c.state == TaskState.RELEASED
)
_OPEN_TASKS = _OPEN.where(
    tasks.c.job_id.in_(bindparam("jobs", expanding=True)), tasks.c.n.in_(bindparam("numbers", expanding=True))
)
_END_TASK = (
    update(tasks)
    .where(_OF_TASK)
    .values(
        state=bindparam("to"),
        reason=bindparam("why"),
        result=bindparam("answer"),
        place=bindparam("turn"),
        ended_at=bindparam("now"),
    )
)

ENDS = ("ok", "failed", "expired", "cancelled")
ADDED = (*ENDS, "released", "places", "bytes", "scored", "score_sum", "score_squares")
_ADD = (
    update(jobs)
    .where(jobs.c.job_id == bindparam("job"))
    .values({name: jobs.c[name] + bindparam(f"more_{name}") for name in ADDED})
)
_CLOSE = (
    update(jobs)
    .where(jobs.c.job_id == bindparam("job"))
    .values(state=JobState.DONE, reason=bindparam("why"), changed_at=bindparam("now"))
)


@dataclass(slots=True)
class Rows:
    """Rows for statements that are executed once for the tasks of all jobs: each costs more than its rows."""

    of: dict[Update, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, statement: Update, *rows: dict[str, Any]) -> None:
        self.of.setdefault(statement, []).extend(rows)

    def execute(self, connection: Connection) -> None:
        for statement, rows in self.of.items():
            connection.execute(statement, rows)


@dataclass(slots=True)
class Purse:
    """The money that somebody may still reserve, None: as much as it likes; and what is reserved."""

    whose: str
    left: int | None
    reserved: int

    def has(self, amount: int) -> bool:
        return self.left is None or amount <= self.left

    def spend(self, amount: int) -> None:
        self.left = None if self.left is None else self.left - amount
        self.reserved += amount


def release(
    connection: Connection, lanes: Lanes, prices: Mapping[str, AgentPrices], now: float
) -> list[Task | TrainRequest]:
    """Release as many tasks as each agent's window has room for, and budgets and quotas allow. Its training runs have
    a window of their own.

    `lanes`: what was released so far. `prices`: of the agents that have some.
    """
    in_fleet = Counter[str]()
    for name, count in connection.execute(_RELEASED):
        in_fleet[name] += count
    rooms = {name: lanes[name].room(in_fleet[name], now) for name in {*lanes, *in_fleet}}
    given = {"full": [name for name, room in rooms.items() if not room], "most": lanes.least}
    there = connection.execute(_NEXT_JOBS, given | {"now": now, "ageing_s": lanes.ageing_s}).all()
    if not there:
        return []
    quotas, registered = limits_of(connection, now, {job.tenant for job in there}), registrations(connection, now)
    purses = {tenant: Purse(f"tenant {tenant!r}", quota.left, quota.reserved) for tenant, quota in quotas.items()}
    of_agents = {one.name: Purse(f"agent {one.name!r}", one.left, one.reserved) for one in registered.values()}
    room = {tenant: quota.room for tenant, quota in quotas.items()}
    by_lane: dict[str, list[Row[Any]]] = defaultdict(list)
    for job in there:
        agent = registered.get(job.agent_id)
        if not quotas[job.tenant].has_tokens:
            explain_wait(connection, job, no_tokens(job.tenant, quotas[job.tenant], now))
        elif not quotas[job.tenant].has_bytes():
            explain_wait(connection, job, no_bytes(job.tenant, quotas[job.tenant]))
        elif agent is not None and not agent.is_served and job.kind != JobKind.TRAINING:
            explain_wait(connection, job, f"agent {agent.name!r} is {agent.state}: {agent.reason}")
        elif room[job.tenant] == 0:
            at_once = f"{quotas[job.tenant].tasks_at_once:,} tasks in the fleet, as many as it may have at a time"
            explain_wait(connection, job, f"the tenant {job.tenant!r} has {at_once}")
        else:
            by_lane[job.lane].append(job)
    weights = {tenant: float(quota.weight) for tenant, quota in quotas.items()}
    found: list[Task | TrainRequest] = []
    rows = Rows()
    for name, its_jobs in by_lane.items():
        agent_id = its_jobs[0].agent_id
        lane = lanes[name]
        in_lane = min(rooms[name] if name in rooms else lane.room(0, now), RELEASED_AT_ONCE)
        waiting = [
            Waiting(job.job_id, job.tenant, job.priority, job.served_at, job.waiting, job.samples or 1)
            for job in its_jobs
        ]
        by_id = {job.job_id: job for job in its_jobs}
        agent = registered.get(agent_id)
        its_prices = agent.find_prices(prices) if agent else prices.get(agent_id)
        order = lane.order
        while chosen := order.choose(waiting, in_lane, weights, now):
            for job_id, count in chosen:
                tenant = by_id[job_id].tenant
                its_purses = [purses[tenant], *([of_agents[agent_id]] if agent else [])]
                route = agent.route if agent else None
                left = room[tenant]
                most = count if left is None else min(count, left)
                new = _release(connection, by_id[job_id], most, its_prices, its_purses, route, now, rows)
                room[tenant] = None if left is None else left - len(new)
                in_lane -= len(new)
                lane.count_released(len(new))
                found += new
            had_turn = {job_id for job_id, _ in chosen}
            waiting = [job for job in waiting if job.job_id not in had_turn]
            order = FairOrder(lanes.ageing_s)  # the room that others can't pay for just now is no part of a share
    rows.execute(connection)
    return found


def _release(
    connection: Connection,
    job: Row[Any],
    count: int,
    prices: AgentPrices | None,
    purses: Sequence[Purse],
    route: Route | None,
    now: float,
    rows: Rows,
) -> list[Task | TrainRequest]:
    waiting = connection.execute(_WAITING_TASKS, {"job": job.job_id, "most": count}).all()
    new = [
        (row, task_to_release(row.body, job.kind, _task_id(job, row), job.deadline, prices, route)) for row in waiting
    ]
    if prices is not None:
        new = new[: _affordable(connection, job, new, prices, purses, now)]
    if not new:
        return []
    charges = [Charge(row.n, row.attempt, most_cost(task, prices)) for row, task in new if prices is not None]
    reserve(connection, job, charges, now)
    reserved = {charge.n: charge.reserved for charge in charges}
    same = {"job": job.job_id, "at_prices": None if prices is None else prices.model_dump_json()}
    rows.add(_MARK_RELEASED, *(same | {"number": row.n, "most": reserved.get(row.n)} for row, _ in new))
    since = now if job.state == JobState.QUEUED else job.changed_at
    rows.add(_COUNT_RELEASED, {"job": job.job_id, "count": len(new), "now": now, "since": since})
    return [task for _, task in new]


def _affordable(
    connection: Connection,
    job: Row[Any],
    new: Sequence[tuple[Any, Task | TrainRequest]],
    prices: AgentPrices,
    purses: Sequence[Purse],
    now: float,
) -> int:
    """Return how many of the tasks can be paid for, and take that out of the purses of its tenant and its agent.

    A job that can pay for none is paused, unless tasks in the fleet may free some when they end.
    """
    own = Purse("", None if job.budget is None else job.budget - job.reserved - job.spent, job.released)
    count = needed = most = 0
    for _, task in new:
        most = most_cost(task, prices)
        if any(not one.has(needed + most) for one in (own, *purses)):
            break
        count, needed = count + 1, needed + most
    for purse in purses:
        purse.spend(needed)
    short = next((one for one in (own, *purses) if not one.has(most)), None)
    if not count and short is not None and not short.reserved:
        reason = _no_money(job, most, short)
        values = {"state": JobState.PAUSED, "reason": reason, "changed_at": now}
        connection.execute(update(jobs).where(jobs.c.job_id == job.job_id).values(values))
    return count


def _no_money(job: Row[Any], most: int, short: Purse) -> str:
    """`short`: the purse with too little in it, of the job's own budget if it has no name."""
    what = f"the budget of the {short.whose}" if short.whose else f"its budget of {units(job.budget):f}"
    left = units(short.left or 0)
    return (
        f"{what} can't pay for the next task: it may cost up to {units(most):f}, and {left:f} is left. "
        f"`ratchet jobs resume` goes on, with `--budget` for a larger one"
    )


def explain_wait(connection: Connection, job: Row[Any], reason: str) -> None:
    if job.reason != reason:
        connection.execute(update(jobs).where(jobs.c.job_id == job.job_id).values(reason=reason))


def _task_id(job: Any, row: Any) -> str:
    return task_id_of(job.job_id, row.n, row.attempt)


def released_tasks(connection: Connection, now: float) -> list[Task | TrainRequest]:
    """Return the tasks that an earlier life released and has no answer to: they are sent once more, by the same id."""
    registered = registrations(connection, now)
    rows = connection.execute(
        select(
            *(tasks.c.n, tasks.c.attempt, tasks.c.body, tasks.c.prices),
            *(jobs.c.job_id, jobs.c.kind, jobs.c.deadline, jobs.c.agent_id),
        )
        .join(jobs, jobs.c.job_id == tasks.c.job_id)
        .where(jobs.c.released > 0, tasks.c.state == TaskState.RELEASED)
        .order_by(tasks.c.job_id, tasks.c.n)
    )
    return [
        task_to_release(
            row.body,
            row.kind,
            _task_id(row, row),
            row.deadline,
            AgentPrices.model_validate_json(row.prices) if row.prices else None,
            registered[row.agent_id].route if row.agent_id in registered else None,
        )
        for row in rows
    ]


def store(connection: Connection, results: Sequence[Result], now: float) -> Counter[str]:
    """End the tasks that these are the Results of, each once. Returns how many ended in which state."""
    by_job: dict[str, dict[tuple[int, int], Result]] = defaultdict(dict)
    for result in results:
        job_id, n, attempt = parse_task_id(result.task_id)
        by_job[job_id][n, attempt] = result
    found = connection.execute(_JOBS, {"jobs": list(by_job)}).all()
    numbers = {n for of_job in by_job.values() for n, _ in of_job}
    open_ones: dict[str, dict[tuple[int, int], Any]] = defaultdict(dict)
    for task in connection.execute(_OPEN_TASKS, {"jobs": list(by_job), "numbers": list(numbers)}):
        open_ones[task.job_id][(task.n, task.attempt)] = task
    ended: Counter[str] = Counter()
    rows = Rows()
    for job in found:
        ended += _store(connection, job, by_job[job.job_id], open_ones[job.job_id], now, rows)
    rows.execute(connection)
    return ended


def _store(
    connection: Connection,
    job: Row[Any],
    results: Mapping[tuple[int, int], Result],
    open_ones: Mapping[tuple[int, int], Row[Any]],
    now: float,
    rows: Rows,
) -> Counter[str]:
    """`results` and `open_ones`: by number and attempt."""
    new = {key: result for key, result in results.items() if key in open_ones}
    if not new:
        return Counter()
    bodies = [result.encode() for result in new.values()]
    ends = (
        {
            "job": job.job_id,
            "number": n,
            "now": now,
            "to": result.status,
            "why": None if result.reason is None else result.reason.replace("\0", ""),  # PostgreSQL takes none
            "answer": body.decode(),
            "turn": job.places + turn,
        }
        for turn, ((n, _), result, body) in enumerate(zip(new, new.values(), bodies, strict=True), start=1)
    )
    rows.add(_END_TASK, *ends)
    counts = Counter[str](result.status for result in new.values())
    is_run = job.kind == JobKind.TRAINING
    charges = [charge_of(open_ones[key], result, is_run=is_run) for key, result in new.items()]
    settle(connection, job, charges, now)
    size = sum(map(len, bodies))
    rows.add(_ADD, _values_to_add(job, counts, [one.score for one in new.values() if one.score is not None], size))
    if job.state in OPEN and not job.waiting and job.released == len(new):
        rows.add(_CLOSE, {"job": job.job_id, "why": _summary(job, counts), "now": now})
    return counts


def _values_to_add(job: Row[Any], counts: Mapping[str, int], scores: Sequence[float], size: int) -> dict[str, Any]:
    """Return the values of _ADD for tasks that ended. `size`: the bytes of their results."""
    ended = sum(counts.values())
    moved: dict[str, float] = {**dict.fromkeys(ENDS, 0), **counts, "released": -ended, "places": ended, "bytes": size}
    moved |= {"scored": len(scores), "score_sum": sum(scores), "score_squares": sum(one * one for one in scores)}
    return {"job": job.job_id, **{f"more_{name}": amount for name, amount in moved.items()}}


def _summary(job: Row[Any], counts: Mapping[str, int]) -> str:
    """Return how the tasks of a job have ended, with those that end now (`counts`)."""
    ok, *others = (job._mapping[name] + counts.get(name, 0) for name in ENDS)
    bad = "".join(f", {count:,} {name}" for name, count in zip(ENDS[1:], others, strict=True) if count)
    return f"all {job.tasks:,} tasks have ended: {ok:,} ok{bad}"


def expire(connection: Connection, now: float, keep_s: float) -> int:
    """End what is due, and forget what ended long ago. Returns how many tasks expired unanswered."""
    due = and_(jobs.c.state.in_(OPEN), jobs.c.deadline <= now)
    values = {"state": JobState.EXPIRED, "reason": JobState.EXPIRED.sentence, "changed_at": now}
    connection.execute(update(jobs).where(due).values(values))
    _end_some_waiting(connection, now)
    unanswered = 0
    late = and_(jobs.c.released > 0, jobs.c.deadline <= now - GRACE_S)
    for job in connection.execute(select(jobs).where(late).with_for_update()).all():
        unanswered += _give_up(connection, job, now)
    loading = and_(jobs.c.state == JobState.LOADING, jobs.c.changed_at <= now - LOADING_S)
    old = and_(jobs.c.state.not_in([*OPEN, JobState.LOADING]), ~IS_HELD, jobs.c.changed_at <= now - keep_s)
    most = ENDED_AT_ONCE
    for its, end in ((loading, drop), (old, forget)):
        for job in connection.execute(select(jobs).where(its).limit(FORGOTTEN_AT_ONCE).with_for_update()).all():
            if most > 0:
                end(connection, job.job_id)
                most -= job.tasks
    forget_old(connection, now, keep_s)
    return unanswered


def _end_some_waiting(connection: Connection, now: float) -> None:
    """End waiting tasks of jobs that have ended: a lot of them, for a job may have a million."""
    left = ENDED_AT_ONCE
    ended = and_(IS_HELD, jobs.c.waiting > 0, jobs.c.state.in_((JobState.EXPIRED, JobState.CANCELLED)))
    for job in connection.execute(select(jobs).where(ended).order_by(jobs.c.changed_at).with_for_update()).all():
        if left > 0:
            left -= end_waiting(connection, job, now, left)


def _give_up(connection: Connection, job: Row[Any], now: float) -> int:
    rows = connection.execute(_OPEN.where(tasks.c.job_id == job.job_id))
    open_ones: dict[tuple[int, int], Any] = {(row.n, row.attempt): row for row in rows}
    reason = f"the fleet gave no answer within {GRACE_S:g} s of its deadline: see `ratchet status`"
    results = {
        (n, attempt): Result(task_id=task_id_of(job.job_id, n, attempt), status="expired", reason=reason)
        for n, attempt in open_ones
    }
    ends = Rows()
    _store(connection, job, results, open_ones, now, ends)
    ends.execute(connection)
    return len(open_ones)
