"""The scorer over the API: given answers scored directly, past the queues."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.messages.base import Identifier, Record, Seconds
from schemas.messages.reward import SampleScore, ScorerIdentity
from schemas.messages.task import Prompt, Reference


class ScoreRequest(Record):
    input: Prompt = Field(description="What was asked: text, or chat messages.")
    responses: Annotated[tuple[str, ...], Field(min_length=1, max_length=64)] = Field(
        description="The answers; a relative judge compares them with each other."
    )
    reference: Reference | None = Field(None, description="The right answer, for scorers that verify.")
    criteria: str | None = Field(None, description="What a good answer is, for scorers that judge.")
    task_type: Identifier | None = Field(None, description="The kind of task, where scoring depends on it.")


class ScoreAnswer(Record):
    """One score per answer, in order. A null score says that it could not be scored, not that it is bad."""

    scorer: ScorerIdentity
    scores: list[SampleScore]
    seconds: Seconds = Field(description="Scoring, batching included.")
