"""Tasks over the API: what is asked, where it is to be seen, one line of the list, and one task's whole history."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.messages.base import Identifier, Metadata, Record, Score, Seconds, Timestamp, absent
from schemas.messages.feedback import LoggedFeedback
from schemas.messages.response import BreakKind, FinishReason, ForeignPart, SampleStatus, ToolAudit, ToolCall, Usage
from schemas.messages.result import Result
from schemas.messages.reward import ScorerIdentity, ScoreStatus
from schemas.messages.task import NO_BOOLEAN, Prompt, Select, Task, Tool
from schemas.messages.work import Arm, Sampling
from schemas.messages.workspace import Artifact, Workspace
from schemas.records.cascade import Routing

TaskState = Literal["open", "ok", "failed", "expired", "cancelled"]
HopName = Literal["queued", "generated", "awaiting_score", "scored", "settled"]


class TaskSubmission(Task):
    """A Task as it is published to the queue, but `task_id` may be left out."""

    task_id: Identifier | None = Field(  # type: ignore[assignment]
        None, description="Unique per task; also the idempotency key. Made up if absent."
    )


class Deliberation(TaskSubmission):
    """A Task of which several answers are made, and one of them chosen."""

    samples: Annotated[int, Field(ge=1, le=64), NO_BOOLEAN] = Field(
        8, description="Group size: answers sampled; the user gets one of them."
    )
    select: Select = Field("best", description=Task.model_fields["select"].description)


class TaskAccepted(Record):
    """The task is in the log and on its way; `location` is where to look for it."""

    task_id: str
    state: Literal["open"] = "open"
    location: str


class TaskSummary(Record):
    """One line of the list. What only the log has is null where its segment is already sealed and compressed."""

    task_id: str
    sequence: int = Field(ge=0, description="Assignment order over all tasks of the fleet.")
    state: TaskState
    agent_id: str | None
    adapter_version: str | None
    score: Score | None = Field(description="Of the answer the user got.")
    samples: int = Field(ge=0, description="Samples of it in the log.")
    reason: str | None = Field(description="Of a task that failed, expired or was cancelled.")
    admitted_at: Timestamp | None
    closed_at: Timestamp | None
    input: str | None = Field(description="The beginning of what was asked, on one line.")
    response: str | None = Field(description="The beginning of the answer, on one line.")


class Hop(Record):
    """A stretch of the task's way. `at` is its beginning, as far as the log tells: it keeps durations, not moments."""

    name: HopName
    service: str = Field(description="Who had the task in hand, or whose queue it waited in.")
    at: Timestamp
    seconds: Seconds | None = Field(description="Null while it lasts.")
    attempts: int | None = Field(description="Times it was tried; null for a wait.")


class LoggedTurn(Record):
    """One message of a conversation; for one that was given all numbers are null."""

    role: str
    content: str
    reasoning: str | None
    tool_calls: list[ToolCall]
    tokens: int | None = Field(description="Sampled as it.")
    prompt_tokens: int | None = Field(description="That the model was given for it, with what it had seen before.")
    seconds: float | None = Field(description="That its call took; null where nobody measured it.")


class LoggedSegment(Record):
    """A part of a conversation in which each call went on from the one before."""

    broke: BreakKind | None = Field(description="Why it does not go on from what came before; null for the first.")
    role: str | None = Field(None, description="The role of the program that sampled it; null where it has no roles.")
    adapter_version: str | None = Field(None, description="Of the role's agent: what it was sampled with.")
    prompt_tokens: int
    sampled_tokens: int
    given_tokens: int = Field(description="Between those sampled.")
    turns: list[LoggedTurn]


class LoggedSample(Record):
    """One sampled answer with its score."""

    index: int = Field(ge=0)
    text: str
    score: Score | None
    status: ScoreStatus | None
    reason: str | None = Field(description="What the scorer says about the score.")
    finish_reason: FinishReason | None
    tokens: int | None = Field(description="Null where the agent gave no token ids.")
    chosen: bool = Field(description="The one the user got.")
    segments: list[LoggedSegment] | None = Field(None, description="Of a conversation of several calls.")
    unreadable: str | None = Field(None, description="Why its conversation, which is logged apart, can't be shown.")
    ended: SampleStatus | None = Field(None, description="How a rollout ended.")
    says: str | None = Field(None, description="Why, of a rollout that did not end by itself.")
    untaught: str | None = Field(None, description="Why no training learns from it; null: one may.")
    program: str | None = Field(None, description="What made the rollout.")
    usage: Usage | None = Field(None, description="What the rollout took.")
    artifact: Artifact | None = Field(None, description="What it left in its workspace.")
    tool_audit: ToolAudit | None = Field(None, description="What it did with our tools.")
    foreign: tuple[ForeignPart, ...] | None = Field(None, description="Roles that other providers' models played.")
    parts: dict[str, Score] | None = Field(None, description="What each strategy gave, of a score put together.")
    place: int | None = Field(None, description="In the judge's order, where it was to choose; 1 is the best.")


class TaskHistory(Record):
    """All the logs know of one task."""

    task_id: str
    sequence: int = Field(ge=0)
    state: TaskState
    agent_id: str
    input: Prompt
    tools: tuple[Tool, ...] | None = Field(None, description="What the model could ask for.")
    workspace: Workspace | None = Field(None, description="Files that the answer changes.")
    programs: tuple[str, ...] | None = Field(None, description="Which of the agent's programs were to answer.")
    select: Select | None = Field(None, description="How the user's answer is chosen; null: the best-scored.")
    pass_score: Score | None = Field(None, description="The score that passes, of first-passing; null: 1.0.")
    metadata: Metadata
    reference: str | None
    criteria: str | None
    task_type: str | None
    session_id: str | None
    priority: int
    admitted_at: Timestamp
    deadline: Timestamp
    closed_at: Timestamp | None
    arm: Arm | None = Field(
        description="What it was assigned to. Null to a submitter while the task is open, who might choose by it what "
        "to cancel."
    )
    sampling: Sampling
    hops: list[Hop]
    samples: list[LoggedSample]
    engine: str | None
    adapter_sha256: str | None
    scoring_agent_id: str | None
    scorer: ScorerIdentity | None
    cascade: Routing | None = Field(
        None, exclude_if=absent, description="Where a big model may answer: how the task was routed, and its answer."
    )
    result: Result | None
    feedback: list[LoggedFeedback] = Field([], description="What applications said of its answers, in that order.")
