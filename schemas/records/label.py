"""LoggedLabel: what a person said of an answer, or of two, as a line of logs/labels.jsonl. It teaches nothing."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from schemas.messages.base import Identifier, LogEpoch, Message, Record, Score, Timestamp


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
