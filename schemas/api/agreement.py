"""The agreement of scorer, auditor and people; and labels: an answer to look at, and what a person said of it."""

from __future__ import annotations

from pydantic import Field

from schemas.api.feedback import GivenScore, Index
from schemas.messages.base import Identifier, Record, Timestamp
from schemas.messages.task import Prompt


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
