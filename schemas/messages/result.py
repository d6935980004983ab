"""Result: what the user gets back. The best-scored sample of the group, or a sentence saying why there is none."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from schemas.messages.base import Identifier, Message, Metadata, Record, Score, absent
from schemas.messages.response import MOST_SAID, SampleStatus, ToolAudit
from schemas.messages.workspace import Artifact

ResultStatus = Literal["ok", "failed", "expired", "cancelled"]


class RolloutEnd(Record):
    """The end of one rollout of a task. `says` is there where it did not end by itself."""

    sample: int = Field(ge=0, description="Which of its group.")
    status: SampleStatus
    program: Identifier | None = None
    says: str | None = Field(None, max_length=MOST_SAID, description="Why, in a sentence.")


class TaskUsage(Record):
    """The tokens that a task took, those of rollouts that were lost or called off left out."""

    prompt_tokens: int = Field(ge=0, description="Given to the model; of a group that shares its prompt once.")
    sampled_tokens: int = Field(ge=0, description="Sampled in all of its answers.")


class Result(Message):
    """`task_id` may be empty only where the task was too broken to have one."""

    TYPE: ClassVar[str] = "result.v1"

    task_id: str = Field(max_length=200)
    response: str | None = None
    score: Score | None = None
    agent_id: Identifier | None = None
    adapter_version: str | None = None
    metadata: Metadata = Metadata()
    status: ResultStatus = "ok"
    reason: str | None = Field(
        None, description="For failed, expired, cancelled and partial: what happened and what to do."
    )
    sample: int | None = Field(None, ge=0, description="Index of the chosen sample in its group.")
    partial: bool | None = Field(
        None,
        exclude_if=absent,
        description="True: not all answers were made and scored by the deadline; it is chosen by what there was.",
    )
    votes: int | None = Field(
        None, ge=1, exclude_if=absent, description="Of `select: majority`: how many of the answers say the same."
    )
    artifact: Artifact | None = Field(
        None, exclude_if=absent, description="Of a task with a workspace: what the chosen sample changed in it."
    )
    tool_audit: ToolAudit | None = Field(
        None, exclude_if=absent, description="What the chosen sample did with our tools, without the audit's lines."
    )
    usage: TaskUsage | None = Field(None, exclude_if=absent, description="Of a task that has `needs_usage`.")
    rollouts: tuple[RolloutEnd, ...] | None = Field(
        None, exclude_if=absent, description="How each rollout of the group ended, where one of them did not by itself."
    )
