"""Reward: what a scorer thought of a Response. A null score is not 0: a failure of ours is never a training signal."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from schemas.messages.base import AgentId, Identifier, Message, Metadata, Record, Score, Seconds, absent
from schemas.messages.response import Response


class TaskScores(Record):
    """One task's. A null score is not 0: that sample could not be scored."""

    task_id: Identifier
    adapter_version: str
    scores: tuple[Score | None, ...] = Field(min_length=1, description="One for each sample, in their order.")


class AgentRewards(Message):
    """Each logged group once, in the order of logging; a task that ended without an answer is not in it."""

    TYPE: ClassVar[str] = "agent_rewards.v1"

    agent_id: AgentId
    metadata: Metadata = Metadata()
    tasks: tuple[TaskScores, ...] = Field(min_length=1)


ScoreStatus = Literal["ok", "unscorable", "infra_fail", "timeout", "cancelled"]
NOT_MENTIONED = "the scorer gave no score for this sample"
"""The reason of a sample that its Reward says nothing of, as a draft-shaped one does of all but the first."""


class SampleScore(Record):
    """The score of one sample, in the order of the Response's samples. Null exactly when the status is not ok."""

    score: Score | None = None
    status: ScoreStatus = "ok"
    reason: str | None = None
    place: int | None = Field(
        None, ge=1, exclude_if=absent, description="Where `select: judge` is asked: the judge's order, 1 the best."
    )
    parts: dict[str, Score] | None = Field(
        None, exclude_if=absent, description="Of a score that was put together: what each strategy gave."
    )

    @model_validator(mode="after")
    def _null_unless_ok(self) -> Self:
        if (self.score is None) == (self.status == "ok"):
            raise ValueError(f"score {self.score} does not go with status {self.status!r}")
        return self


class ScorerIdentity(Record):
    """The scorer that gave the score: a change in any of the three is a change of scorer."""

    id: Identifier
    revision: str
    rubric_sha256: str | None = None


class ScoringLatencies(Record):
    """Seconds: waiting in the responses queue, and scoring (batching included)."""

    queue_s: Seconds = 0.0
    score_s: Seconds = 0.0
    attempts: int | None = Field(None, ge=1, description="Times it was tried; absent where the first did it.")


class Reward(Message):
    """`score` is the score of the first sample."""

    TYPE: ClassVar[str] = "reward.v1"

    task_id: Identifier
    score: Score | None = None
    scoring_agent_id: Identifier
    metadata: Metadata = Metadata()
    scores: tuple[SampleScore, ...] = ()
    scorer: ScorerIdentity | None = None
    latencies: ScoringLatencies = ScoringLatencies()
    reference_score: Score | None = Field(
        None,
        exclude_if=absent,
        description="What the task's reference is worth as an answer, 0 where it can't be scored; absent where "
        "references do not teach, or the scorer can't tell.",
    )
    scored: Response | None = Field(None, description="The Response it scores; absent in a draft-shaped Reward.")

    @model_validator(mode="after")
    def _scores_its_own_response(self) -> Self:
        if self.scored is not None and self.scored.task_id != self.task_id:
            raise ValueError(f"scores task {self.task_id!r} but carries the response of {self.scored.task_id!r}")
        return self
