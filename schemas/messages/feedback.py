"""Feedback: what an application thinks of an answer it got. LoggedFeedback: that, as a line of logs/feedback.jsonl."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.messages.base import Identifier, LogEpoch, Message, Metadata, Score, Timestamp, absent

Correction = Annotated[str, Field(min_length=1, max_length=100_000)]


class Feedback(Message):
    """Two fields suffice. In training the score takes the place of the scorer's; of several the last one counts."""

    TYPE: ClassVar[str] = "feedback.v1"

    task_id: Identifier
    score: Score = Field(description="0 is useless, 1 is as good as can be; a thumb is 0 or 1.")
    metadata: Metadata = Metadata()
    sample: int | None = Field(None, ge=0, lt=64, description="Index in the group; the answer the user got if absent.")
    correction: Correction | None = Field(
        None, exclude_if=absent, description="The answer as it should have been: a demonstration, which teaches."
    )
    reason: str | None = Field(None, max_length=2000)
    feedback_id: Identifier | None = Field(
        None, description="The idempotency key. If absent, the AMQP message id; without one the body itself."
    )


class LoggedFeedback(Message):
    """Written once for each `feedback_id`, and never changed: who changes their mind sends a new one."""

    TYPE: ClassVar[str] = "logged_feedback.v1"

    feedback_id: Identifier
    task_id: Identifier
    sample: int = Field(ge=0)
    score: Score
    correction: Correction | None = Field(None, exclude_if=absent, description="The answer as it should have been.")
    reason: str | None = None
    agent_id: Identifier
    adapter_version: str = Field(description="Which answered.")
    given_by: str | None = Field(None, max_length=200, description="Caller of the API; absent if it came by the queue.")
    timestamp: Timestamp = Field(description="When the fleet took it.")
    metadata: Metadata = Metadata()
    schema_version: Literal["logged_feedback.v1"] = "logged_feedback.v1"
    epoch: LogEpoch = None

    @property
    def key(self) -> str:
        """Return what there is one line of."""
        return self.feedback_id
