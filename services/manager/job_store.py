"""The acts of users on jobs, each a transaction: submit, look, pause, resume, cancel, run again.

The fleet's are in services/manager/release.py.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection, Row, and_, bindparam, delete, func, insert, or_, select, update

from ratchet.experiments.served import Mean
from ratchet.http.access.roles import Caller
from ratchet.http.problem import Problem
from ratchet.logs.tenants import DEFAULT, MARK, key_beginning, own_id
from ratchet.service.errors import NotAllowed
from ratchet.service.prices import AgentPrices, micros, units
from schemas.api.jobs import (
    MOST_TASKS,
    Job,
    JobDetail,
    JobKind,
    JobResult,
    JobState,
    JobSubmission,
    MoreTasks,
    TaskState,
)
from schemas.api.status import Interval
from schemas.messages.result import Result
from services.manager.limits import check_budget, check_open_tasks, check_quota, size_of
from services.manager.submission import JobTerms, NewTask, read_tasks, task_id_of
from services.manager.tables import jobs, tasks, transfers, used_ids

COUNTS = ("released", "ok", "failed", "expired", "cancelled", "places", "reserved", "spent")
MADE_UP = re.compile("job-[0-9a-f]{32}")
"""The id of a job whose user gave it none."""
LONGEST_KEY = 100
"""Characters of a job's id, with its tenant before it."""
LOADING_S = 3600.0
"""Seconds until a job whose tasks stopped coming is dropped."""
RATE_S = 60.0
ENDED_BY_CALL = 1_000
"""Waiting tasks of a job that its cancelling ends at once; the others end within seconds."""
REASONS = 10
PAGE_SIZE = 8_000_000
"""Characters of the results on a page, if it has more than one: results may have megabytes of artifacts."""
NO_APPROVAL = "it waits for approval: an operator lets it go on with `ratchet jobs resume`"
OPEN = (JobState.QUEUED, JobState.RUNNING, JobState.PAUSED)
NOT_RUN = {
    JobState.CANCELLED: (TaskState.CANCELLED, "its job was cancelled"),
    JobState.EXPIRED: (TaskState.EXPIRED, "the deadline of its job passed before its turn came"),
}
"""States and reasons with which waiting tasks end when their job does."""
NO_ANSWER = (TaskState.FAILED, TaskState.EXPIRED, TaskState.CANCELLED)

# Statements of the calls that come most often. SQLAlchemy takes as long to put one together as SQLite to answer it.
_NEW_JOB = insert(jobs)
_NEW_TASKS = insert(tasks)
_JOB = select(jobs).where(jobs.c.job_id == bindparam("key"))
_LOCKED_JOB = _JOB.with_for_update()
_USED = select(used_ids.c.attempt).where(used_ids.c.job_id == bindparam("key"))
_OWNER = select(jobs.c.owner).where(jobs.c.job_id == bindparam("key"))
_FIRST_PLACE_SINCE = (
    select(tasks.c.place)
    .where(tasks.c.job_id == bindparam("key"), tasks.c.ended_at > bindparam("since"))
    .order_by(tasks.c.ended_at, tasks.c.place)
    .limit(1)
)
_FAILURES = (
    select(tasks.c.reason, func.count())
    .where(tasks.c.job_id == bindparam("key"), tasks.c.state.in_((TaskState.FAILED, TaskState.EXPIRED)))
    .group_by(tasks.c.reason)
    .order_by(func.count().desc(), tasks.c.reason)
    .limit(REASONS)
)


def submit(
    connection: Connection,
    asked: JobSubmission,
    agent_id: str,
    tenant: str,
    caller: Caller,
    prices: AgentPrices | None,
    now: float,
    default_deadline: float,
    *,
    needs_approval: bool = False,
) -> tuple[Job, bool]:
    """Return the job, and whether it is new. Raises Problem for one that can't be: then nothing of it is kept."""
    job_id = caller.key_of(asked.job_id or f"job-{uuid.uuid4().hex}")
    owner = caller.owner
    if len(job_id) > LONGEST_KEY:
        raise Problem(422, "Not a job", f"job_id has {len(job_id) - LONGEST_KEY} characters too many", "bad-job")
    deadline = asked.deadline.timestamp() if asked.deadline else default_deadline
    said = _digest(asked)
    if asked.job_id is not None and (known := find_job(connection, job_id)) is not None:
        if known.tenant != tenant or known.owner != owner or known.asked != said:
            raise Problem(409, "Another job", f"the job {job_id!r} is another one: take a new id", "other-job")
        return _job(known), False
    if deadline <= now:
        raise Problem(422, "Too late", f"the deadline {asked.deadline} has passed", "deadline-passed")
    terms = JobTerms(agent_id, asked.kind, asked.samples, asked.priority)
    new = list(read_tasks(asked.tasks, job_id, terms, 0))
    if asked.budget is not None:
        check_budget(new, micros(asked.budget), terms, prices)
    check_quota(connection, tenant, new, now)
    state, reason = _state_of_new(more=asked.more, needs_approval=needs_approval)
    values: dict[str, Any] = {
        **dict.fromkeys(COUNTS, 0),
        "tasks": len(new),
        "waiting": len(new),
        "bytes": size_of(new),
        "job_id": job_id,
        "tenant": tenant,
        "owner": owner,
        "agent_id": agent_id,
        "kind": asked.kind,
        "state": state,
        "reason": reason,
        "asked": said,
        "priority": asked.priority,
        "samples": asked.samples,
        "budget": None if asked.budget is None else micros(asked.budget),
        "created_at": now,
        "changed_at": now,
        "served_at": now,
        "deadline": deadline,
        "awaits_approval": needs_approval,
    }
    connection.execute(_NEW_JOB, values)
    _insert_tasks(connection, job_id, new, is_named=asked.job_id is not None)
    return _job(SimpleNamespace(**values)), True


def add_tasks(
    connection: Connection,
    job_id: str,
    given: MoreTasks,
    prices_of: Callable[[Connection, str], AgentPrices | None],
    now: float,
) -> Job:
    """Add tasks to a job that is loading; those that it has are passed over.

    Raises Problem where some before them are missing, or where it has others under their numbers.
    """
    job = _must_find(connection, job_id)
    end = given.first + len(given.tasks)
    if given.first > job.tasks:
        raise Problem(409, "Tasks are missing", f"the next task of job {job_id!r} has the number {job.tasks}", "gap")
    if end > MOST_TASKS:
        raise Problem(422, "Too many tasks", f"a job may have {MOST_TASKS:,} tasks", "too-many-tasks")
    terms = JobTerms(job.agent_id, job.kind, job.samples, job.priority)
    new = list(read_tasks(given.tasks, job_id, terms, given.first))
    there = dict(
        connection.execute(
            select(tasks.c.n, tasks.c.body).where(tasks.c.job_id == job_id, tasks.c.n >= given.first, tasks.c.n < end)
        ).all()
    )
    if other := next((one.n for one in new if there.get(one.n, one.body) != one.body), None):
        raise Problem(409, "Another task", f"task {other} of job {job_id!r} is another one", "other-task")
    missing = [one for one in new if one.n not in there]
    if job.state != JobState.LOADING and missing:
        raise NotAllowed(f"job {job_id!r} is {job.state}: it takes no further tasks")
    if job.state == JobState.LOADING:
        if job.budget is not None:
            check_budget(missing, job.budget, terms, prices_of(connection, job.agent_id))
        check_quota(connection, job.tenant, missing, now)
        _insert_tasks(connection, job_id, missing, is_named=True)
        state, reason = _state_of_new(more=given.more, needs_approval=job.awaits_approval)
        values: dict[str, Any] = {"state": state, "reason": reason, "changed_at": now, "served_at": now}
        values |= {"tasks": jobs.c.tasks + len(missing), "waiting": jobs.c.waiting + len(missing)}
        values["bytes"] = jobs.c.bytes + size_of(missing)
        connection.execute(update(jobs).where(jobs.c.job_id == job_id).values(values))
    return _job(_must_find(connection, job_id))


def drop_loading(connection: Connection, job_id: str) -> None:
    """Drop a job that was refused while its tasks came in; any other stays."""
    job = find_job(connection, job_id)
    if job is not None and job.state == JobState.LOADING:
        drop(connection, job_id)


def forget(connection: Connection, job_id: str) -> None:
    """Drop a job, but for the ids that its tasks had in the fleet, which answers an id once."""
    last = connection.execute(select(func.max(tasks.c.attempt)).where(tasks.c.job_id == job_id)).scalar()
    if last is not None and not MADE_UP.fullmatch(own_id(job_id)):
        connection.execute(delete(used_ids).where(used_ids.c.job_id == job_id))
        connection.execute(insert(used_ids).values(job_id=job_id, attempt=last))
    drop(connection, job_id)


def drop(connection: Connection, job_id: str) -> None:
    """Remove a job and its tasks."""
    connection.execute(delete(tasks).where(tasks.c.job_id == job_id))
    connection.execute(delete(transfers).where(transfers.c.job_id == job_id))
    connection.execute(delete(jobs).where(jobs.c.job_id == job_id))


def get(connection: Connection, job_id: str, caller: Caller, now: float) -> JobDetail:
    """Return a job but for its failures by reason. Raises Problem 404 for one that there is not, or that the caller
    may not see."""
    row = connection.execute(_JOB, {"key": job_id}).one_or_none()
    if row is None or not caller.may_see(job_id, row.owner):
        raise _no_such_job(job_id)
    left = row.waiting + row.released
    first = connection.execute(_FIRST_PLACE_SINCE, {"key": job_id, "since": now - RATE_S}).scalar()
    ended = 0 if first is None else row.places - first + 1
    seconds = 0.0 if not left else RATE_S * left / ended if ended and row.state != JobState.PAUSED else None
    return JobDetail(**_fields(row), score=_score(row), failures={}, ended_last_minute=ended, seconds_left=seconds)


def failures(connection: Connection, job_id: str) -> dict[str, int]:
    """Return how many tasks failed or expired for each reason; takes as long as there are such tasks."""
    counted = connection.execute(_FAILURES, {"key": job_id})
    return {reason or "no reason was given": count for reason, count in counted}


def page(connection: Connection, caller: Caller, state: JobState | None, before: str | None, limit: int) -> list[Job]:
    """Return jobs that the caller may see, the newest first, those after the job `before`."""
    query = select(jobs).order_by(jobs.c.created_at.desc(), jobs.c.job_id.desc()).limit(limit)
    if caller.own_only:
        query = query.where(jobs.c.owner == caller.owner)
    if caller.is_bound and caller.tenant == DEFAULT:
        query = query.where(~jobs.c.job_id.startswith(MARK))
    elif caller.is_bound:
        beginning = key_beginning(caller.tenant)  # says whose it is; the index is by `tenant`
        query = query.where(jobs.c.tenant == caller.tenant, jobs.c.job_id.startswith(beginning, autoescape=True))
    if state is not None:
        query = query.where(jobs.c.state == state)
    if before is not None:
        at = select(jobs.c.created_at).where(jobs.c.job_id == before).scalar_subquery()
        query = query.where(or_(jobs.c.created_at < at, and_(jobs.c.created_at == at, jobs.c.job_id < before)))
    return [_job(row) for row in connection.execute(query)]


def results(connection: Connection, job_id: str, after: int, limit: int) -> tuple[list[JobResult], bool]:
    """Return tasks that have ended, in that order, those after the place `after`, and whether there may be more."""
    its = and_(tasks.c.job_id == job_id, tasks.c.place > after)
    sizes = select(tasks.c.place, func.length(tasks.c.result)).where(its).order_by(tasks.c.place).limit(limit)
    there = connection.execute(sizes).all()
    sums = accumulate(size or 0 for _, size in there)
    fitting = [place for (place, _), size in zip(there, sums, strict=True) if size <= PAGE_SIZE] or [
        place for place, _ in there[:1]
    ]
    query = select(tasks).where(its, tasks.c.place <= max(fitting, default=0)).order_by(tasks.c.place)
    found = [
        JobResult(
            place=row.place,
            task_id=task_id_of(job_id, row.n, row.attempt),
            n=row.n,
            own_id=row.own_id,
            state=TaskState[row.state.upper()],
            reason=row.reason,
            result=Result.decode(row.result) if row.result else None,
        )
        for row in connection.execute(query)
    ]
    return found, len(fitting) < len(there) or len(there) == limit


def pause(connection: Connection, job_id: str, now: float) -> Job:
    """Release no further task; those that the fleet has go on. Raises NotAllowed."""
    job = _must_find(connection, job_id)
    if job.state not in OPEN:
        raise NotAllowed(f"job {job_id!r} is {job.state}: only one that is queued or running can be paused")
    return _change(connection, job_id, JobState.PAUSED, "somebody paused it: `ratchet jobs resume` goes on", now)


def resume(connection: Connection, job_id: str, budget: int | None, now: float, *, may_approve: bool = True) -> Job:
    """Let a job go on, with a `budget` where one is given. Raises NotAllowed for one that has ended, or is loading, or
    waits for an approval that the caller can't give."""
    job = _must_find(connection, job_id)
    if job.awaits_approval and job.state == JobState.PAUSED:
        if not may_approve:
            raise NotAllowed(f"job {job_id!r} waits for the approval of an operator")
        connection.execute(update(jobs).where(jobs.c.job_id == job_id).values(awaits_approval=False))
    if budget is not None and budget < job.reserved + job.spent:
        used = f"{units(job.spent):f} is spent, and {units(job.reserved):f} reserved"
        raise Problem(402, "Budget too small", f"a budget of {units(budget):f} is too small: {used}", "budget")
    if job.state not in OPEN:
        raise NotAllowed(f"job {job_id!r} is {job.state}: only one that is paused can be resumed")
    if budget is not None:
        connection.execute(update(jobs).where(jobs.c.job_id == job_id).values(budget=budget))
        job = _must_find(connection, job_id)
    if job.state != JobState.PAUSED:
        return _job(job)
    state = JobState.QUEUED if job.waiting == job.tasks else JobState.RUNNING
    return _change(connection, job_id, state, None, now)


def cancel(connection: Connection, job_id: str, now: float) -> Job:
    """End a job: what waits is not run; what the fleet has ends by itself, and its results are kept."""
    job = _must_find(connection, job_id)
    if state_of(job).has_ended:
        return _job(job)
    _change(connection, job_id, JobState.CANCELLED, "somebody cancelled it", now)
    end_waiting(connection, _must_find(connection, job_id), now, ENDED_BY_CALL)
    return _job(_must_find(connection, job_id))


def rerun(connection: Connection, job_id: str, now: float, default_deadline: float) -> Job:
    """Run the tasks again that have no answer. Raises NotAllowed for a job that is loading."""
    job = _must_find(connection, job_id)
    if job.state == JobState.LOADING:
        raise NotAllowed(f"job {job_id!r} is loading: none of its tasks was run yet")
    unanswered = and_(tasks.c.job_id == job_id, tasks.c.state.in_(NO_ANSWER))
    size = sum(
        len((one or "").encode()) for one in connection.execute(select(tasks.c.result).where(unanswered)).scalars()
    )
    again = connection.execute(
        update(tasks)
        .where(unanswered)
        .values(
            state=TaskState.WAITING, attempt=tasks.c.attempt + 1, place=None, ended_at=None, reason=None, result=None
        )
    ).rowcount
    has_ended = state_of(job).has_ended
    if not again and not (has_ended and job.waiting):
        return _job(job)
    check_open_tasks(connection, job.tenant, again, now)
    changed = {
        "failed": 0,
        "expired": 0,
        "cancelled": 0,
        "waiting": jobs.c.waiting + again,
        "bytes": jobs.c.bytes - size,
    }
    if has_ended:
        changed |= {
            "state": JobState.PAUSED if job.awaits_approval else JobState.RUNNING,
            "reason": NO_APPROVAL if job.awaits_approval else f"{again + job.waiting:,} tasks run again",
            "changed_at": now,
            "served_at": now,
        }
        changed |= {"deadline": default_deadline} if job.deadline <= now else {}
    connection.execute(update(jobs).where(jobs.c.job_id == job_id).values(changed))
    return _job(_must_find(connection, job_id))


def end_waiting(connection: Connection, job: Row[Any], now: float, most: int) -> int:
    """End tasks that wait, of a job that has expired or was cancelled, each with a place of its own; at most so many.

    Returns how many.
    """
    state, reason = NOT_RUN[state_of(job)]
    mine = and_(tasks.c.job_id == job.job_id, tasks.c.state == TaskState.WAITING)
    places = (
        select(tasks.c.n, (job.places + func.row_number().over(order_by=tasks.c.n)).label("place"))
        .where(mine)
        .order_by(tasks.c.n)
        .limit(most)
        .subquery()
    )
    ended: int = connection.execute(
        update(tasks)
        .where(mine, tasks.c.n == places.c.n)
        .values(state=state, reason=reason, ended_at=now, place=places.c.place)
    ).rowcount
    counts: dict[str, Any] = {
        "waiting": jobs.c.waiting - ended,
        "places": jobs.c.places + ended,
        state.value: jobs.c[state.value] + ended,
    }
    connection.execute(update(jobs).where(jobs.c.job_id == job.job_id).values(counts))
    return ended


def _insert_tasks(connection: Connection, job_id: str, new: Sequence[NewTask], *, is_named: bool) -> None:
    """`is_named`: a user chose the job's id, which an earlier job may have had."""
    used = connection.execute(_USED, {"key": job_id}).scalar() if is_named else None
    same = {"job_id": job_id, "attempt": 1 + (used or 0), "state": TaskState.WAITING}
    if rows := [same | {"n": one.n, "own_id": one.own_id, "body": one.body} for one in new]:
        connection.execute(_NEW_TASKS, rows)


def _state_of_new(*, more: bool, needs_approval: bool) -> tuple[JobState, str]:
    """Return the state of a job some of whose tasks have come, and its reason. `more`: others follow."""
    if more:
        return JobState.LOADING, JobState.LOADING.sentence
    return (JobState.PAUSED, NO_APPROVAL) if needs_approval else (JobState.QUEUED, JobState.QUEUED.sentence)


def _change(connection: Connection, job_id: str, state: JobState, reason: str | None, now: float) -> Job:
    values = {"state": state, "reason": reason or state.sentence, "changed_at": now}
    connection.execute(update(jobs).where(jobs.c.job_id == job_id, jobs.c.state != state).values(values))
    return _job(_must_find(connection, job_id))


def state_of(job: Row[Any] | SimpleNamespace) -> JobState:
    return JobState[job.state.upper()]


def _digest(asked: JobSubmission) -> str:
    """Return what a request says, its tasks shortened to a digest."""
    lines = json.dumps(asked.tasks, sort_keys=True).encode()
    known_before = {"kind"} if asked.kind == JobKind.TASKS else set()  # jobs that an older version stored say no kind
    said = asked.model_dump(mode="json", exclude={"tasks", *known_before}) | {
        "tasks": hashlib.sha256(lines).hexdigest()
    }
    return json.dumps(said, sort_keys=True)


def find_job(connection: Connection, job_id: str) -> Row[Any] | None:
    """Return its row, which stays as it is until the transaction ends."""
    return connection.execute(_LOCKED_JOB, {"key": job_id}).one_or_none()


def check_visible(connection: Connection, job_id: str, caller: Caller) -> None:
    """Raises Problem 404 for a job that there is not, or that the caller may not see."""
    owner = connection.execute(_OWNER, {"key": job_id}).one_or_none()
    if owner is None or not caller.may_see(job_id, owner[0]):
        raise _no_such_job(job_id)


def _no_such_job(job_id: str) -> Problem:
    return Problem(404, "No such job", f"there is no job {own_id(job_id)!r}; GET /v1/jobs lists them", "unknown-job")


def _must_find(connection: Connection, job_id: str) -> Row[Any]:
    if (found := find_job(connection, job_id)) is None:
        raise _no_such_job(job_id)
    return found


def _score(row: Row[Any]) -> Interval | None:
    if not row.scored:
        return None
    return Mean.of_sums(row.scored, row.score_sum, row.score_squares).interval()


def _job(row: Row[Any] | SimpleNamespace) -> Job:
    return Job(**_fields(row))


def _fields(row: Row[Any] | SimpleNamespace) -> dict[str, Any]:
    def moment(seconds: float) -> datetime:
        return datetime.fromtimestamp(seconds, UTC)

    deadline = row.changed_at + LOADING_S if row.state == JobState.LOADING else row.deadline
    same = ("job_id", "agent_id", "tenant", "reason", "priority", "samples", "tasks", "waiting", "released", "ok")
    return {name: getattr(row, name) for name in (*same, "failed", "expired", "cancelled")} | {
        "budget": None if row.budget is None else units(row.budget),
        "reserved": units(row.reserved),
        "spent": units(row.spent),
        "kind": JobKind[row.kind.upper()],
        "state": state_of(row),
        "created_at": moment(row.created_at),
        "changed_at": moment(row.changed_at),
        "deadline": moment(deadline),
    }
