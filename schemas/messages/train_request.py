"""TrainRequest: train a new adapter for an agent from the log. The same `request_id` is never trained twice."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, JsonValue

from schemas.messages.base import AdapterVersion, AgentId, Identifier, Message, Metadata


class TrainRequest(Message):
    """A request for a training. The trainer chooses what is not given; the algorithm checks `hyperparameters`."""

    TYPE: ClassVar[str] = "train_request.v1"

    request_id: Identifier = Field(description="Unique per training run; also the idempotency key.")
    agent_id: AgentId
    metadata: Metadata = Metadata()
    algorithm: Identifier = Field(
        "grpo", description="grpo, weighted-sft, kto, … or one registered by name: docs/training.md."
    )
    parent_version: AdapterVersion | None = Field(None, description="Start from it; from the primary if absent.")
    since: int = Field(0, ge=0, description="Read the log of interactions from this byte on.")
    until: int | None = Field(None, ge=0, description="Read it to before this byte; to its end if absent.")
    feedback_until: int | None = Field(
        None, ge=0, description="Read the log of feedback to before this byte; to its end if absent."
    )
    hyperparameters: dict[str, JsonValue] = Field(default_factory=dict)
    seed: int = Field(0, ge=0)
