"""TrainRequest asks for a new adapter of an agent; AdapterTrained tells how the run ended.

The same `request_id` is never trained twice. `refused` is a verdict on the data, `failed` a fault that may pass.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, JsonValue, model_validator

from schemas.messages.base import AdapterVersion, AgentId, Identifier, Message, Metadata, Sha256, absent


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
    research_agent: AgentId | None = Field(
        None,
        exclude_if=absent,
        description="Learn from the tasks of this registered agent alone. The version answers only its tasks.",
    )


class AdapterTrained(Message):
    """A trained adapter lies in its folder, complete, when this is sent."""

    TYPE: ClassVar[str] = "adapter_trained.v1"

    request_id: Identifier
    agent_id: AgentId
    status: Literal["trained", "refused", "failed"]
    metadata: Metadata = Metadata()
    adapter_version: AdapterVersion | None = None
    adapter_sha256: Sha256 | None = None
    parent_version: AdapterVersion | None = None
    reason: str | None = Field(None, description="For refused and failed: why, with the numbers.")
    counts: dict[str, int] = Field(default_factory=dict, description="Of the data: groups used, and dropped by reason.")
    metrics: dict[str, JsonValue] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _trained_has_a_version_and_the_rest_a_reason(self) -> Self:
        if self.status == "trained" and (self.adapter_version is None or self.adapter_sha256 is None):
            raise ValueError("status 'trained' goes with adapter_version and adapter_sha256")
        if self.status != "trained" and not self.reason:
            raise ValueError(f"status {self.status!r} goes with a reason")
        return self
