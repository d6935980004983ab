"""The scorer over the API: given answers scored directly, past the queues."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from schemas.messages.base import Identifier, Record, Seconds
from schemas.messages.response import MOST_COUNTED, Usage
from schemas.messages.reward import SampleScore, ScorerIdentity
from schemas.messages.task import Prompt, Reference
from schemas.messages.workspace import Artifact, Workspace


class ScoreRequest(Record):
    input: Prompt = Field(description="What was asked: text, or chat messages.")
    responses: Annotated[tuple[str, ...], Field(min_length=1, max_length=64)] = Field(
        description="The answers; a relative judge compares them with each other."
    )
    artifacts: Annotated[tuple[Artifact | None, ...], Field(min_length=1, max_length=64)] | None = Field(
        None, description="Of a task with a workspace: what each of the answers left in it."
    )
    usages: Annotated[tuple[Usage | None, ...], Field(min_length=1, max_length=64)] | None = Field(
        None, description="What each of the answers took, for scorers of cost."
    )
    workspace: Workspace | None = Field(None, description="The files that the answers change.")
    reference: Reference | None = Field(None, description="The right answer, for scorers that verify.")
    criteria: str | None = Field(None, description="What a good answer is, for scorers that judge.")
    task_type: Identifier | None = Field(None, description="The kind of task, where scoring depends on it.")

    @model_validator(mode="after")
    def _one_each(self) -> Self:
        for name, nothing in (("artifacts", "left nothing"), ("usages", "nobody measured")):
            given = getattr(self, name)
            if given is not None and len(given) != len(self.responses):
                raise ValueError(f"{name} has not as many as responses: null for an answer that {nothing}")
        if any(usage is not None and usage.most > MOST_COUNTED for usage in self.usages or ()):
            raise ValueError(f"usages has a number above {MOST_COUNTED:,}")
        return self


class ScoreAnswer(Record):
    """One score per answer, in order. A null score says that it could not be scored, not that it is bad."""

    scorer: ScorerIdentity
    scores: list[SampleScore]
    seconds: Seconds = Field(description="Scoring, batching included.")
