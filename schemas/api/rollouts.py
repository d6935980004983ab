"""Rollouts over the API: of one runner those that run now, and of the fleet what its runners told."""

from __future__ import annotations

from pydantic import Field

from schemas.messages.base import AgentId, Identifier, Record, Seconds, Timestamp
from schemas.messages.runner_rollouts import RolloutProgress


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
    ended: list[RolloutProgress] = Field(description="The newest that ended here, at most 128, the oldest first.")
    waiting: int = Field(ge=0, description="Rollouts that wait for their turn.")
    at_once: int = Field(ge=1, description="That this runner runs side by side.")


class FleetRollout(RolloutProgress):
    """`runner` has it, or had it."""

    runner: Identifier


class RunnerView(Record):
    """A runner that told of itself within the last seconds."""

    runner: Identifier
    at_once: int = Field(ge=1)
    running: int = Field(ge=0)
    waiting: int = Field(ge=0)


class FleetRollouts(Record):
    """The rollouts heard of from runners. Nothing is kept over a restart; the log has the results."""

    items: list[FleetRollout] = Field(description="Those that run, and the newest that ended; the oldest first.")
    runners: list[RunnerView]
