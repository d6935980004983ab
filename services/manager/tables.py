"""The tables of the manager's database, as the newest migration leaves them. Moments are seconds since 1970."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    literal_column,
)

METADATA = MetaData()

jobs = Table(
    "jobs",
    METADATA,
    Column("job_id", String(100), primary_key=True),
    Column("tenant", String(100), nullable=False),
    Column("owner", String(200)),
    Column("agent_id", String(63), nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", Text),
    Column("asked", Text, nullable=False),  # the request, without its tasks: the same id must come with the same
    Column("priority", Integer, nullable=False),
    Column("samples", Integer),
    Column("created_at", Double, nullable=False),
    Column("changed_at", Double, nullable=False),
    Column("served_at", Double, nullable=False),  # when the last of its tasks was released
    Column("deadline", Double, nullable=False),  # of the state `loading`: until when its tasks must have come
    Column("tasks", Integer, nullable=False, default=0),
    Column("waiting", Integer, nullable=False, default=0),
    Column("released", Integer, nullable=False, default=0),
    Column("ok", Integer, nullable=False, default=0),
    Column("failed", Integer, nullable=False, default=0),
    Column("expired", Integer, nullable=False, default=0),
    Column("cancelled", Integer, nullable=False, default=0),
    Column("places", Integer, nullable=False, default=0),  # the last place given to a task that ended
    Column("budget", BigInteger),  # micro-units; None: the job has none
    Column("reserved", BigInteger, nullable=False, default=0),
    Column("spent", BigInteger, nullable=False, default=0),
    Column("awaits_approval", Boolean, nullable=False, default=False),
    Column("kind", String(16), nullable=False),
    Column("scored", Integer, nullable=False, default=0),  # tasks whose answer has a score
    Column("score_sum", Double, nullable=False, default=0.0),
    Column("score_squares", Double, nullable=False, default=0.0),
    Column("bytes", BigInteger, nullable=False, default=0),  # of its tasks and their results
    Index("jobs_by_state", "state", "agent_id"),
    Index("jobs_by_tenant", "tenant", "created_at", "job_id", "bytes"),
    Index("jobs_by_owner", "owner", "created_at", "job_id"),
    Index("jobs_by_released", "released"),
    Index("jobs_by_change", "changed_at"),
    Index("jobs_by_age", "created_at", "job_id"),
)

IS_HELD = jobs.c.waiting + jobs.c.released + jobs.c.reserved > literal_column("0")
"""True of jobs that count against limits; few of those that are kept."""
Index("jobs_held", jobs.c.tenant, sqlite_where=IS_HELD, postgresql_where=IS_HELD)

tasks = Table(
    "tasks",
    METADATA,
    Column("job_id", String(100), primary_key=True),
    Column("n", Integer, primary_key=True),
    Column("attempt", Integer, nullable=False, default=1),
    Column("state", String(16), nullable=False),
    Column("own_id", String(200)),  # the task_id of its line
    Column("body", Text, nullable=False),
    Column("ended_at", Double),
    Column("place", Integer),  # its turn among the ended tasks of its job, from 1
    Column("reason", Text),
    Column("result", Text),
    Column("reserved", BigInteger),  # of a released task; None: it costs nothing
    Column("prices", Text),  # that held when it was released
    Index("tasks_by_state", "job_id", "state", "n"),
    Index("tasks_by_place", "job_id", "place"),
    Index("tasks_by_end", "job_id", "ended_at", "place"),
)

used_ids = Table(  # of jobs that are forgotten: a new job by the same id has tasks of other ids in the fleet
    "used_ids",
    METADATA,
    Column("job_id", String(100), primary_key=True),
    Column("attempt", Integer, nullable=False),  # the last one of its tasks
)

transfers = Table(
    "transfers",
    METADATA,
    Column("transfer_id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at", Double, nullable=False),
    Column("tenant", String(100), nullable=False),
    Column("job_id", String(100), nullable=False),
    Column("n", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("source", String(16), nullable=False),
    Column("target", String(16), nullable=False),
    Column("amount", BigInteger, nullable=False),
    Index("transfers_by_job", "job_id"),
)

quotas = Table(
    "quotas",
    METADATA,
    Column("tenant", String(100), primary_key=True),
    Column("weight", Integer, nullable=False),
    Column("open_tasks", BigInteger),
    Column("tasks_at_once", BigInteger),
    Column("tokens_a_day", BigInteger),
    Column("budget", BigInteger),
    Column("bytes", BigInteger),
)


USED = ("tasks", "prompt_tokens", "sampled_tokens", "spent")
"""Amounts that tasks have used, summed up."""


def _amounts() -> list[Column[int]]:
    return [Column(name, BigInteger, nullable=False) for name in USED]


usage = Table(
    "usage",
    METADATA,
    Column("day", String(10), primary_key=True),
    Column("tenant", String(100), primary_key=True),
    Column("agent_id", String(63), primary_key=True),
    Column("job_id", String(100), primary_key=True),
    *_amounts(),
)

daily_usage = Table(  # the sums of `usage` over jobs: limits look here, for there may be a million jobs
    "daily_usage",
    METADATA,
    Column("tenant", String(100), primary_key=True),
    Column("day", String(10), primary_key=True),
    Column("agent_id", String(63), primary_key=True),
    *_amounts(),
)

agents = Table(
    "agents",
    METADATA,
    Column("name", String(63), primary_key=True),
    Column("owner", String(200)),
    Column("tenant", String(32), nullable=False, server_default="default"),
    Column("model", String(63), nullable=False),
    Column("rules", Text, nullable=False),  # AgentRules, as JSON
    Column("budget", BigInteger),
    Column("revision", Integer, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("changed_at", Double, nullable=False),
    Column("retired", Boolean, nullable=False),
)

agent_reports = Table(
    "agent_reports",
    METADATA,
    Column("runner", String(200), primary_key=True),
    Column("name", String(63), primary_key=True),
    Column("revision", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", Text),
    Column("reported_at", Double, nullable=False),
)
