"""The log over the API: its last lines, without token ids and log-probabilities."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.messages.base import Metadata, Record, Score, Timestamp
from schemas.messages.reward import ScoreStatus
from schemas.messages.task import Prompt


class LogLine(Record):
    """One sample as it was logged; one line with nulls of a task that ended without an answer."""

    task_id: str
    input: Prompt
    response: str | None
    score: Score | None
    agent_id: str
    adapter_version: str
    timestamp: Timestamp
    metadata: Metadata
    status: Literal["ok", "failed", "expired"] = "ok"
    reason: str | None = Field(None, description="Of a task that failed or expired.")
    sample: int | None = Field(description="Index in the group.")
    group_size: int
    score_status: ScoreStatus | None = None
    score_reason: str | None = Field(None, description="What the scorer says about the score.")


class LogTail(Record):
    """The oldest first. Only of the file that is being written: right after a rotation there are few lines."""

    items: list[LogLine]
    next: None = None
