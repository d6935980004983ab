"""Jobs over the API: what is asked, what became of it, and the results."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StringConstraints

from schemas.api.status import Interval
from schemas.messages.base import AgentId, Identifier, Record, Sentences, Timestamp
from schemas.messages.result import Result
from schemas.messages.task import NO_BOOLEAN

MOST_TASKS_A_CALL = 10_000
MOST_TASKS = 1_000_000

JobKey = Annotated[
    str, StringConstraints(min_length=1, max_length=100, pattern=r"^(tenant:[a-z0-9-]+/)?[A-Za-z0-9][A-Za-z0-9._-]*$")
]
"""A job's id; of another tenant's, as those know it who see all tenants, with the tenant's name before it."""
JobId = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Money = Annotated[Decimal, Field(ge=0, max_digits=15, decimal_places=6)]
"""An amount in the currency of the file of prices, down to a millionth of it."""
Count = Annotated[int, Field(ge=0, le=2**53), NO_BOOLEAN]
TaskLines = Annotated[
    list[dict[str, Any] | str],
    Field(
        max_length=MOST_TASKS_A_CALL,
        description="Tasks: each an object with at least `input`, or a text, which is the input. Its own `task_id` is "
        "kept as `own_id`. Of a training each is a run: an object with any of `algorithm`, `parent_version`, `since`, "
        "`until`, `feedback_until`, `hyperparameters`, `seed`.",
    ),
]


class JobKind(Sentences):
    TASKS = "tasks", "Its tasks teach and are counted as those of its agent are."
    EVALUATION = "evaluation", "Its tasks teach nothing, and no experiment counts them."
    TRAINING = "training", "Each of its lines is a training run of its agent's model; the result is its version."


class JobState(Sentences):
    LOADING = "loading", "Its tasks are still coming in; none is released."
    QUEUED = "queued", "None of its tasks was released yet."
    RUNNING = "running", "Its tasks are released in their turn."
    PAUSED = "paused", "No further task is released."
    DONE = "done", "Every task has ended."
    CANCELLED = "cancelled", "Somebody ended it."
    EXPIRED = "expired", "Its deadline passed."

    @property
    def has_ended(self) -> bool:
        return self in (JobState.DONE, JobState.CANCELLED, JobState.EXPIRED)


class TaskState(Sentences):
    WAITING = "waiting", "It waits in the manager."
    RELEASED = "released", "The fleet has it."
    OK = "ok", "It has an answer."
    FAILED = "failed", "It came to nothing."
    EXPIRED = "expired", "Its deadline passed."
    CANCELLED = "cancelled", "It was ended before it was released."


class JobSubmission(Record):
    """A job: many tasks of one agent. The same `job_id` is the same job: sent again, it is not run again."""

    job_id: JobId | None = Field(None, description="Unique per job; made up if absent.")
    agent_id: AgentId | None = Field(None, description="Which agent answers; the fleet's default one if absent.")
    kind: JobKind = Field(
        JobKind.TASKS, description="Whether its tasks teach, and experiments count them; or its lines are runs."
    )
    tasks: TaskLines = Field(min_length=1)
    more: StrictBool = Field(False, description="Further tasks follow, and none is released before the last of them.")
    samples: Annotated[int, Field(ge=1, le=64), NO_BOOLEAN] | None = Field(
        None, description="Answers sampled for a task that does not say it itself; of an evaluation 1 if absent."
    )
    priority: Annotated[int, Field(ge=1, le=10), NO_BOOLEAN] = Field(1, description="10 goes first.")
    deadline: Timestamp | None = Field(None, description="What has not ended then expires.")
    budget: Money | None = Field(None, description="The most that it may cost; the job is paused before it costs more.")


class MoreTasks(Record):
    """Further tasks of a job that is loading."""

    first: Annotated[int, Field(ge=1, le=MOST_TASKS), NO_BOOLEAN] = Field(
        description="The number of the first of them; the tasks of a job are numbered from 0."
    )
    tasks: TaskLines
    more: StrictBool = Field(False, description="Further tasks follow.")


class Job(Record):
    job_id: JobKey
    agent_id: AgentId
    tenant: Identifier
    kind: JobKind
    state: JobState
    reason: str | None = Field(description="Why it is in this state, in a sentence.")
    priority: int
    samples: int | None
    created_at: Timestamp
    changed_at: Timestamp = Field(description="When it came into this state.")
    deadline: Timestamp = Field(description="When it expires, or, while it is loading, is dropped.")
    tasks: int = Field(ge=0)
    waiting: int = Field(ge=0, description="Tasks that the manager has not released.")
    released: int = Field(ge=0, description="Tasks that the fleet has.")
    ok: int = Field(ge=0)
    failed: int = Field(ge=0)
    expired: int = Field(ge=0)
    cancelled: int = Field(ge=0)
    budget: Money | None
    reserved: Money = Field(description="The most that the tasks which the fleet has can cost.")
    spent: Money


class JobDetail(Job):
    score: Interval | None = Field(description="The mean score of its answers; null if none has one.")
    failures: dict[str, int] = Field(description="How many tasks failed or expired for each reason, the ten commonest.")
    ended_last_minute: int = Field(ge=0, description="Tasks that ended within the last minute.")
    seconds_left: float | None = Field(description="Until all have ended, at the last minute's rate; null if none did.")


class JobResult(Record):
    """A task that has ended. `place` counts them in the order in which they did."""

    place: int = Field(ge=1)
    task_id: str
    n: int = Field(ge=0, description="Its number among the job's tasks, from 0.")
    own_id: str | None = Field(description="The `task_id` that its line had.")
    state: TaskState
    reason: str | None
    result: Result | None = Field(description="Null where it ended without one.")


class TenantQuota(Record):
    """Limits of a tenant; null: no limit."""

    weight: Annotated[int, Field(ge=1, le=1000), NO_BOOLEAN] = Field(
        1, description="Its share of what is released, beside those of others."
    )
    open_tasks: Count | None = Field(None, description="Tasks of its jobs that have not ended.")
    tasks_at_once: Count | None = Field(None, description="Tasks of its jobs that the fleet has at a time; more wait.")
    tokens_a_day: Count | None = Field(None, description="Tokens of its jobs in a day of UTC.")
    budget: Money | None = Field(None, description="The most that all of its jobs may cost.")
    bytes: Count | None = Field(
        None, description="Bytes of its tasks and their results, artifacts included, that the manager keeps."
    )


class TenantUse(TenantQuota):
    """The limits of a tenant, and what it has used of them."""

    tenant: str
    is_open: int = Field(ge=0, description="Tasks that have not ended.")
    bytes_kept: int = Field(ge=0)
    tokens_today: int = Field(ge=0)
    tokens_reset_at: Timestamp
    reserved: Money
    spent: Money


UsageKey = Literal["agent", "job", "day"]


class UsageRow(Record):
    """The tokens and the cost of what was answered for one agent, job or day."""

    key: str
    tasks: int = Field(ge=0)
    prompt_tokens: int = Field(ge=0)
    sampled_tokens: int = Field(ge=0)
    spent: Money


class Usage(Record):
    currency: str | None = Field(description="Null where the manager has no prices.")
    items: list[UsageRow]
