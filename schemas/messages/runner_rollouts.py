"""RunnerRollouts: what a runner's rollouts are at, about once a second while there are any, and which programs it has.

For whoever listens just then: each message says all of it, so one that was missed is made up for by the next.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from schemas.messages.base import AgentId, Identifier, Message, Metadata, Record, Seconds, Sha256, Timestamp

RolloutState = Literal["running", "waiting", "finished", "failed", "limit", "lost", "cancelled"]
"""`waiting`: for a person; it has no process, and goes on once there is an answer."""


class RolloutProgress(Record):
    """One rollout, as far as it has come."""

    task_id: Identifier
    agent_id: AgentId
    program: Identifier
    sample: int = Field(ge=0, description="Which of its group.")
    state: RolloutState = Field(description="Running, or how it ended.")
    started_at: Timestamp
    seconds: Seconds = Field(description="Since its start, or that it took.")
    calls: int = Field(ge=0, description="Of the model, so far.")
    sampled_tokens: int = Field(ge=0)
    says: str | None = Field(None, max_length=2000, description="How it ended, in a sentence.")


class DeclaredProgram(Record):
    """A program that a runner answers an agent's tasks with. Another `revision` is another program."""

    agent_id: AgentId
    name: Identifier
    revision: Sha256 = Field(description="The sum over its declaration and what it binds.")


class RunnerRollouts(Message):
    """The rollouts that run, and those that ended in the last half minute; every few seconds also without any."""

    TYPE: ClassVar[str] = "runner_rollouts.v1"

    runner: Identifier
    metadata: Metadata = Metadata()
    at_once: int = Field(ge=1, description="Rollouts that it runs side by side.")
    waiting: int = Field(ge=0, description="Rollouts that wait for their turn.")
    items: tuple[RolloutProgress, ...] = Field(description="The oldest first.")
    programs: tuple[DeclaredProgram, ...] | None = Field(None, description="All it has; absent of an older runner.")
