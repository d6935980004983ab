"""Interaction: one sample as logged in logs/agent_interactions.jsonl. The drafted eight fields come first."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from schemas.messages.base import (
    AgentId,
    Identifier,
    KeptApart,
    LogEpoch,
    Message,
    Metadata,
    Record,
    Score,
    Seconds,
    Sha256,
    Timestamp,
    absent,
)
from schemas.messages.response import (
    MOST_SAID,
    Edited,
    FinishReason,
    ForeignPart,
    SampleStatus,
    Segment,
    ToolAudit,
    Usage,
    sampled_tokens,
)
from schemas.messages.result import ResultStatus
from schemas.messages.reward import ScorerIdentity, ScoreStatus
from schemas.messages.task import Prompt, Select, Tool
from schemas.messages.work import Arm, Sampling
from schemas.messages.workspace import Artifact
from schemas.records.cascade import Routing


class Latencies(Record):
    """Seconds: in the work queue, generating, in the responses queue, scoring, and from admission to the log."""

    queue_s: Seconds
    generate_s: Seconds
    score_queue_s: Seconds
    score_s: Seconds
    total_s: Seconds


class Attempts(Record):
    """The number of tries each took until it was done: one where nothing failed."""

    generate: int = Field(ge=1)
    score: int = Field(ge=1)


class Trajectory(Record):
    """The place of segments that are too long for a line: `trajectories/<sha256>.zst` beside the log."""

    sha256: Sha256 = Field(description="Of what the file expands to.")
    size: int = Field(ge=0, description="Bytes that it expands to.")
    segments: int = Field(ge=1)
    sampled_tokens: int = Field(ge=0)


class Interaction(Message):
    """A task that ended without an answer has one line, with `sample`, `response` and `score` null and a reason."""

    TYPE: ClassVar[str] = "interaction.v1"

    task_id: Identifier
    input: Prompt
    response: str | None
    score: Score | None
    agent_id: Identifier
    adapter_version: str
    timestamp: Timestamp
    metadata: Metadata

    schema_version: Literal["interaction.v1"] = "interaction.v1"
    status: ResultStatus = "ok"
    reason: str | None = None
    sample: int | None = Field(ge=0, description="Index in the group.")
    group_size: int = Field(ge=0)
    arm: Arm
    adapter_sha256: Sha256 | None = None
    prompt_ids: tuple[int, ...] | None = None
    completion_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    sampling: Sampling
    finish_reason: FinishReason | None = None
    stopped_at: str | None = Field(
        None, exclude_if=absent, description="Of the strings of `sampling.stop` the one that it ended before."
    )
    segments: tuple[Segment, ...] | None = Field(
        None, exclude_if=absent, description="Of a conversation, in place of the ids and log-probabilities above."
    )
    trajectory: Trajectory | None = Field(
        None, exclude_if=absent, description="In place of segments that are more than 64 KB."
    )
    sample_status: SampleStatus | None = Field(None, exclude_if=absent, description="How a rollout ended.")
    sample_says: str | None = Field(
        None, max_length=MOST_SAID, exclude_if=absent, description="Why, of one that did not end by itself."
    )
    program: Identifier | None = Field(None, exclude_if=absent, description="What made the rollout.")
    usage: Usage | None = Field(None, exclude_if=absent)
    artifact: Artifact | None = Field(None, exclude_if=absent, description="What it left in its workspace.")
    tool_audit: ToolAudit | None = Field(None, exclude_if=absent, description="What it did with our tools.")
    foreign: tuple[ForeignPart, ...] | None = Field(
        None, exclude_if=absent, description="The roles that models of other providers played."
    )
    profile: Identifier | None = Field(None, exclude_if=absent, description="Which of the runner's profiles played.")
    edited: Edited | None = Field(
        None, exclude_if=absent, description="What a person had an answer of it be: a demonstration, which teaches."
    )
    ended_at: Timestamp | None = Field(
        None, exclude_if=absent, description="When a rollout ended, where the first that passes is to be chosen."
    )
    select: Select | None = Field(None, exclude_if=absent, description="How the user's answer is chosen.")
    pass_score: Score | None = Field(None, exclude_if=absent, description="The score that passes, of first-passing.")
    tools: tuple[Tool, ...] | None = Field(None, exclude_if=absent, description="What the model could ask for.")
    token_texts: tuple[str, ...] | None = Field(
        None, exclude_if=absent, description="Of each of completion_ids its text, where the task asked for them."
    )
    needs_usage: bool | None = Field(None, exclude_if=absent, description="The Result says what the task took.")
    registered_agent: AgentId | None = Field(
        None, exclude_if=absent, description="The agent, registered with the manager, whose program answered."
    )
    kept_apart: KeptApart = Field(
        None,
        exclude_if=absent,
        description="It teaches nothing: its asker says so, or its agent does not learn from its tenant; `research`: "
        "nothing but the versions of the research agent that answered it.",
    )
    shared_learning: Literal[True] | None = Field(
        None, exclude_if=absent, description="It teaches an agent that learns from the tasks of all tenants."
    )
    cascade: Routing | None = Field(
        None,
        exclude_if=absent,
        description="On the first line of a task that a big model may answer: how it was routed.",
    )
    reference: str | None = None
    reference_score: Score | None = Field(
        None,
        exclude_if=absent,
        description="What the reference is worth as an answer: at full marks it is a demonstration, which teaches.",
    )
    criteria: str | None = None
    task_type: Identifier | None = None
    session_id: Identifier | None = None
    engine: str | None = None
    scoring_agent_id: Identifier | None = None
    scorer: ScorerIdentity | None = None
    score_status: ScoreStatus | None = None
    score_reason: str | None = None
    score_parts: dict[str, Score] | None = Field(
        None, exclude_if=absent, description="Of a score that was put together: what each strategy gave."
    )
    place: int | None = Field(None, ge=1, exclude_if=absent, description="In the judge's order, of select: judge.")
    latencies: Latencies
    attempts: Attempts | None = Field(None, description="Null where the first attempt did both.")
    epoch: LogEpoch = None

    @property
    def sampled_tokens(self) -> int | None:
        """None where they were not logged."""
        if self.trajectory is not None and self.segments is None:
            return self.trajectory.sampled_tokens
        return sampled_tokens(self.completion_ids, self.segments)

    def encode(self) -> bytes:
        """The drafted fields are always there, null where there is no value."""
        return bytes(self.__pydantic_serializer__.to_json(self))
