"""Feedback, labels and answers to rollouts' questions over the API: what applications and people say."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, JsonValue, model_validator

from schemas.messages.base import JSON_NUMBER, AgentId, Identifier, Metadata, Record, Timestamp
from schemas.messages.feedback import Correction
from schemas.messages.task import Prompt
from schemas.messages.work import Decision

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


class Estimate(Record):
    """With an interval that covers the truth in 95 of 100 cases."""

    value: float
    low: float
    high: float


class Calibration(Record):
    """A scorer beside people. Null where there are too few labels, or nothing varies.

    The two biases are rank correlations of score minus label with length, and with the place in the group: above 0, the
    scorer likes long (late) answers better than people do.
    """

    labels: int
    rank: Estimate | None = Field(description="Spearman's rank correlation of score and label.")
    kappa: Estimate | None = Field(description="Cohen's kappa of good (0.5 and above) against bad.")
    by_length: Estimate | None
    by_position: Estimate | None


class AuditWindow(Record):
    """Audited tasks in the order they came: means of both, and how often they order two answers differently."""

    at: Timestamp = Field(description="Of the last of them.")
    tasks: int
    judge: float | None
    auditor: float | None
    discordance: float | None = Field(description="0: always the same order; 0.5: as by chance; 1: the opposite.")


class AgentAgreement(Record):
    agent_id: str
    auditor: str | None = Field(description="Who audits; null before the first audit.")
    unscored: int = Field(description="Audits without a score, of the latest.")
    latest: AuditWindow | None = Field(description="The newest 200 audits.")
    windows: tuple[AuditWindow, ...] = Field(description="The newest 4,000, oldest first.")
    judge_by_answers: Calibration
    judge_by_pairs: Calibration
    auditor_by_answers: Calibration
    auditor_by_pairs: Calibration


class Agreement(Record):
    items: list[AgentAgreement]


class ShownAnswer(Record):
    sample: int
    text: str


class ToLabel(Record):
    """One answer, or two in random order, of a task; without what anybody gave them, and without their version."""

    task_id: str
    input: Prompt
    reference: str | None
    criteria: str | None
    answers: list[ShownAnswer]


class NextToLabel(Record):
    found: ToLabel | None = Field(description="Null where there is nothing left to label.")


class GivenLabel(Record):
    """A label of `sample`: how good it is; with `other`, how it is beside that one: 1 better, 0.5 as good, 0 worse."""

    task_id: Identifier
    sample: Index
    other: Index | None = None
    score: GivenScore
    label_id: Identifier | None = Field(
        None, description="The idempotency key; the header Idempotency-Key if absent, else made up."
    )


class TakenLabel(Record):
    """Says nothing of the scores it is compared with: who labels on stays blind."""

    label_id: str


class GivenDecision(Record):
    """A person's answer. What it means decides the program that asked.

    Of a result, `reject` and `edit` with a text are the program's next turn; `reject` without one is the end.
    """

    decision: Literal["approve", "reject", "edit"] = Field(description="What the person decided.")
    text: str = Field("", max_length=65_536, description="What the program is told besides: why not, or what instead.")


class Approval(Record):
    """A question of a rollout to a person. It is open until it has a decision or its task has ended."""

    approval_id: Identifier
    task_id: Identifier
    agent_id: AgentId
    program: Identifier
    sample: int = Field(ge=0, description="Which of its group waits.")
    question: str
    options: tuple[str, ...] = Field((), description="Answers to choose from, if there are such.")
    ends: bool = Field(description="Whether a result is to be taken, once its program has ended.")
    answer: str = Field(description="What the program had printed, or the end of it.")
    patch: str = Field(description="What it had changed, or the beginning of it.")
    asked_at: Timestamp
    until: Timestamp = Field(description="After it the rollout ends as it stands.")
    decision: Decision | None = Field(None, description="`expired`: nobody answered in time. Null: it is open.")
    text: str = ""
    given_by: str | None = None
    decided_at: Timestamp | None = None


class Approvals(Record):
    items: list[Approval] = Field(description="The oldest first.")
