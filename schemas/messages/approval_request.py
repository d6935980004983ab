"""ApprovalRequest: a rollout waits for a person. It has no process until the question is answered, or time is up."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from schemas.messages.base import AgentId, Identifier, Message, Metadata

MOST_SHOWN = 60_000
"""Characters of what a person is shown of an answer, and of a patch."""


class ApprovalRequest(Message):
    """The same `approval_id` again is the same question."""

    TYPE: ClassVar[str] = "approval_request.v1"

    approval_id: Identifier
    task_id: Identifier
    agent_id: AgentId
    metadata: Metadata = Metadata()
    program: Identifier
    sample: int = Field(ge=0, description="Which of its group waits.")
    question: str = Field(max_length=8000)
    options: tuple[str, ...] = Field((), max_length=16, description="Answers to choose from, if there are such.")
    ends: bool = Field(False, description="Asked once the program has ended: whether its result is taken.")
    answer: str = Field("", max_length=MOST_SHOWN, description="What it has printed so far, or the end of it.")
    patch: str = Field("", max_length=MOST_SHOWN, description="What it has changed so far, or the beginning of it.")
