"""The records of a cascade: how one task was routed, what the big model answered, and where the share stands."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.messages.base import AdapterVersion, AgentId, Identifier, Record, Score, Sha256, absent
from schemas.messages.response import FinishReason

Model = Literal["small", "big"]


class CascadeCut(Record):
    """The small model answers above `score`, and with the probability `share_at` at it."""

    score: float
    share_at: float = Field(ge=0.0, le=1.0)


class BigAnswer(Record):
    """The big model's answer to a task of the small one. Its own lines have the tokens and the cost."""

    task_id: Identifier = Field(description="Under which the big model was asked, and has its lines.")
    agent_id: AgentId
    adapter_version: AdapterVersion
    response: str
    score: Score | None
    finish_reason: FinishReason | None = None
    engine: str | None = Field(None, exclude_if=absent, description="As in its own lines: another is another model.")
    teaches: bool = Field(description="It scored no less than the small model's best answer: it is a demonstration.")


class Routing(Record):
    """The route of a task, on the first line of the small model's group. A replay needs no more of it."""

    order: int = Field(ge=0, description="0, 1, 2 … in the order of routing, over all tasks of the agent.")
    score: Score | None = Field(description="That routed; null: the small model's group has none.")
    to: Model
    is_unit: bool = Field(description="It was drawn: its difference is evidence.")
    is_audited: bool = Field(description="Both answer, and both answers are judged once more.")
    tested: CascadeCut | None = Field(None, exclude_if=absent, description="Of a unit: the cut that is tested.")
    served: Model | None = Field(description="Whose answer the user got; null: nobody's, for what `reason` says.")
    reason: str | None = Field(
        None, exclude_if=absent, description="Why the big model's answer is not the one that is served."
    )
    big: BigAnswer | None = Field(None, exclude_if=absent, description="The answer; absent: none when it was closed.")


class CascadePlanRecord(Record):
    """The rule's numbers (ratchet/experiments/cascade.py)."""

    margin: float = Field(0.02, gt=0.0, lt=0.5)
    alpha: float = Field(0.05, gt=0.0, le=0.5)
    audit: float = Field(0.1, gt=0.0, le=1.0)


class CascadeState(Record):
    """The share of the tasks that the small model answers, and from where on evidence counts."""

    big: AgentId
    small: AdapterVersion = Field(description="The small model's primary, whose answers are the evidence.")
    plan: CascadePlanRecord
    step: int = Field(ge=0, le=5, description="Of the shares 0, 0.1, 0.2, 0.4, 0.8 and 1.")
    attempt: int = Field(ge=1)
    cut: CascadeCut
    order: int = Field(0, ge=0, description="The routing from which on tasks are evidence.")
    positions: dict[str, int] = Field(description="Log → byte at which it stood before the first of these.")
    draw_id: Identifier = Field(description="The draws are made under this name.")
    draw_sha256: Sha256 | None = Field(None, description="Of the secret that keys them; the next decision tells it.")
