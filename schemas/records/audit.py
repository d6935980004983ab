"""A second verdict on answers to one task (logs/auditor_scores.jsonl), and what a person said of an answer
(logs/labels.jsonl). Neither teaches."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from schemas.messages.base import Identifier, LogEpoch, Message, Record, Score, Timestamp, absent
from schemas.messages.reward import ScorerIdentity
from schemas.messages.work import Arm


class Shown(Record):
    """An answer as the fleet's scorers see it: what they gave it, and what may sway them."""

    sample: int = Field(ge=0, description="Index in the group.")
    length: int = Field(ge=0, description="Characters.")
    judged: Score | None = Field(None, description="The scorer's score.")
    audited: Score | None = Field(None, description="The auditor's, where it saw the task before the person did.")


class LoggedLabel(Message):
    """A label of one answer, how good it is; or of two, how much the first is better: 1 better, 0 worse, 0.5 as
    good."""

    TYPE: ClassVar[str] = "logged_label.v1"

    label_id: Identifier
    task_id: Identifier
    score: Score
    answer: Shown
    other: Shown | None = None
    agent_id: Identifier
    adapter_version: str
    given_by: str = Field(max_length=200)
    timestamp: Timestamp
    schema_version: Literal["logged_label.v1"] = "logged_label.v1"
    epoch: LogEpoch = None

    @property
    def key(self) -> str:
        """The key: there is one line for each."""
        return self.label_id


class AuditedTask(Message):
    """Written once for each task and judge. One that was given up has no scores, and what comes later counts no more.

    The scores are in the order of the samples, the second verdict's and the first one's side by side.
    """

    TYPE: ClassVar[str] = "audited_task.v1"

    task_id: Identifier = Field(description="Of a pair that of the big model's answer.")
    agent_id: Identifier
    adapter_version: str = Field(description="Which answered.")
    arm: Arm
    by: Literal["auditor", "scorer"] = Field(
        "auditor",
        exclude_if=lambda by: by == "auditor",
        description="Who judged: the auditor all answers, or the scorer once more the one that the user got.",
    )
    is_pair: bool = Field(
        False,
        exclude_if=lambda is_pair: not is_pair,
        description="Of a cascade: the small model's best answer, then the big model's, judged together.",
    )
    auditor: ScorerIdentity | None = Field(None, description="Who judged. Absent where the audit was given up.")
    scores: tuple[Score | None, ...] = Field((), description="Of who judged; null where there is none.")
    served: int | None = Field(None, ge=0, exclude_if=absent, description="Which of the answers the user got.")
    judged: tuple[Score | None, ...] = Field(description="The scorer's, which teaches and is the experiments' measure.")
    lengths: tuple[int, ...] = Field((), description="Characters of each answer.")
    reason: str | None = Field(None, description="Why there are no scores.")
    timestamp: Timestamp
    schema_version: Literal["audited_task.v1"] = "audited_task.v1"
    epoch: LogEpoch = None

    @property
    def key(self) -> str:
        """The key: there is one line for each."""
        return self.task_id if self.by == "auditor" else f"{self.task_id}\n{self.by}"
