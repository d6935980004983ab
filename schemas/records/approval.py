"""LoggedApproval: a question of a rollout to a person, its answer, and that the rollout goes on, each as a line of
logs/approvals.jsonl."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from schemas.messages.approval_request import ApprovalRequest
from schemas.messages.base import AgentId, Identifier, LogEpoch, Message, Timestamp, absent
from schemas.messages.work import Decision

ApprovalState = Literal["asked", "decided", "resumed"]


class LoggedApproval(Message):
    """`asked` has the question, `decided` the answer; `resumed` says that the Work went out again with it."""

    TYPE: ClassVar[str] = "logged_approval.v1"

    approval_id: Identifier
    task_id: Identifier
    agent_id: AgentId
    sample: int = Field(ge=0)
    state: ApprovalState
    timestamp: Timestamp
    request: ApprovalRequest | None = Field(None, exclude_if=absent, description="Of `asked`: what was asked.")
    until: Timestamp | None = Field(
        None, exclude_if=absent, description="Of `asked`: after it the rollout ends as it stands."
    )
    decision: Decision | None = Field(None, exclude_if=absent, description="Of `decided`.")
    text: str = ""
    given_by: str | None = Field(None, max_length=200, exclude_if=absent)
    schema_version: Literal["logged_approval.v1"] = "logged_approval.v1"
    epoch: LogEpoch = None

    @property
    def key(self) -> str:
        """The key: there is one line for each."""
        return self.approval_id if self.state == "asked" else f"{self.approval_id}/{self.state}"
