"""AuditedTask: what the auditor said of one task, as a line of logs/auditor_scores.jsonl. It teaches nothing."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from schemas.messages.base import Identifier, LogEpoch, Message, Score, Timestamp
from schemas.messages.reward import ScorerIdentity
from schemas.messages.work import Arm


class AuditedTask(Message):
    """Written once for each task. One that was given up has no scores, and what the auditor says later counts no more.

    The scores are in the order of the samples, the auditor's and the judge's side by side.
    """

    TYPE: ClassVar[str] = "audited_task.v1"

    task_id: Identifier
    agent_id: Identifier
    adapter_version: str = Field(description="Which answered.")
    arm: Arm
    auditor: ScorerIdentity | None = Field(None, description="Absent where the audit was given up.")
    scores: tuple[Score | None, ...] = Field((), description="The auditor's; null where it had none.")
    judged: tuple[Score | None, ...] = Field(description="The scorer's, which teaches and is the experiments' measure.")
    lengths: tuple[int, ...] = Field((), description="Characters of each answer.")
    reason: str | None = Field(None, description="Why there are no scores.")
    timestamp: Timestamp
    schema_version: Literal["audited_task.v1"] = "audited_task.v1"
    epoch: LogEpoch = None

    @property
    def key(self) -> str:
        """What there is one line of."""
        return self.task_id
