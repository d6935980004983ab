"""A cascade over the API: whose answers users get, what that costs, and the evidence for the next step."""

from __future__ import annotations

from pydantic import Field

from schemas.api.adapters import Reason
from schemas.messages.base import AgentId, Record, Timestamp


class CascadeEvidenceView(Record):
    """The e-values of the present attempt at the present step."""

    units: int = Field(ge=0)
    audited: int = Field(ge=0, description="Units in which both models' answers were judged once more.")
    difference: float = Field(description="Mean over the units of small minus big, with the next share.")
    not_worse: float = Field(description="E-value for the next step; at `raise_at` the share rises.")
    worse: float = Field(description="E-value for harm; at `fall_at` the share falls.")
    raise_at: float
    fall_at: float


class CascadeView(Record):
    """Costs are in the currency of RATCHET_PRICES, counted since the cascade began."""

    agent_id: AgentId
    big: AgentId
    share: float = Field(description="Of the tasks, that the small model may answer: those with its best scores.")
    next_share: float | None = Field(description="That is being proved; null: all are the small model's.")
    attempt: int = Field(ge=1)
    since: Timestamp | None
    frozen: bool
    answered_by_small: int = Field(ge=0)
    answered_by_big: int = Field(ge=0)
    in_place: int = Field(ge=0, description="Of the small model's: only because the big one did not answer.")
    share_answered: float | None = Field(description="Of the tasks so far, that the small model answered.")
    small_cost: float
    big_cost: float
    big_alone: float | None = Field(description="What the big model alone would have cost; null: it was not asked.")
    saved: float | None
    spent_today: float = Field(description="On the big model, today (UTC).")
    daily_cap: float | None
    evidence: CascadeEvidenceView


class CascadeSet(Record):
    share: float = Field(description="0, 0.1, 0.2, 0.4, 0.8 or 1.")
    reason: Reason = Field(description="Why: recorded with the decision, under the caller's name.")
