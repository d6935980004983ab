"""Feedback over the API: a score or a thumb."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, JsonValue, model_validator

from schemas.api.numbers import JSON_NUMBER
from schemas.messages.base import Identifier, Metadata, Record
from schemas.messages.feedback import Correction

GivenScore = Annotated[float, Field(ge=0, le=1), JSON_NUMBER]
Index = Annotated[int, Field(ge=0, lt=64), JSON_NUMBER]
ONE_OF_BOTH: dict[str, JsonValue] = {
    "oneOf": [
        {"required": ["score"], "properties": {"score": {"type": "number"}, "thumbs": {"type": "null"}}},
        {"required": ["thumbs"], "properties": {"thumbs": {"type": "string"}, "score": {"type": "null"}}},
    ]
}


class GivenFeedback(Record):
    """Either `score` or `thumbs`: what the application thinks of an answer it got."""

    model_config = ConfigDict(json_schema_extra=ONE_OF_BOTH)

    task_id: Identifier = Field(description="The task, as its result names it.")
    score: GivenScore | None = Field(None, description="0 is useless, 1 is as good as can be.")
    thumbs: Literal["up", "down"] | None = Field(None, description="Up is a score of 1, down of 0.")
    sample: Index | None = Field(None, description="Index in the group; the answer the user got if absent.")
    correction: Correction | None = Field(
        None, description="The answer as it should have been: a demonstration, which teaches."
    )
    reason: str | None = Field(None, max_length=2000, description="Why, for people who read the log.")
    feedback_id: Identifier | None = Field(
        None, description="The idempotency key; the header Idempotency-Key if absent, else made up."
    )
    metadata: Metadata = Metadata()

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.score is None) == (self.thumbs is None):
            raise ValueError("give either score or thumbs")
        return self

    @property
    def value(self) -> float:
        """The score."""
        return self.score if self.score is not None else float(self.thumbs == "up")
