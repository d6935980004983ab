"""AgentRewards: what an agent's answers were worth, of several tasks together, once they are in the log.

For whoever listens just then; the log is the record. Whole Rewards, as scorers sent them, are on the topic `rewards`.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from schemas.messages.base import AgentId, Identifier, Message, Metadata, Record, Score


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
