"""The runner's rollouts over the API: those that run now, and how many wait."""

from __future__ import annotations

from pydantic import Field

from schemas.messages.base import AgentId, Identifier, Record, Seconds, Timestamp


class RunningRollout(Record):
    task_id: Identifier
    agent_id: AgentId
    program: Identifier
    sample: int = Field(ge=0, description="Which of its group.")
    started_at: Timestamp
    ends_within_s: Seconds = Field(description="It is ended then, so that what it has can still be scored.")
    calls: int = Field(ge=0, description="Of the model, so far.")
    sampled_tokens: int = Field(ge=0)


class RunningRollouts(Record):
    items: list[RunningRollout] = Field(description="The oldest first.")
    waiting: int = Field(ge=0, description="Rollouts that wait for their turn.")
    at_once: int = Field(ge=1, description="That this runner runs side by side.")
