"""Approvals over the API: what rollouts asked people, and a person's answer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.messages.base import AgentId, Identifier, Record, Timestamp
from schemas.messages.work import Decision


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
