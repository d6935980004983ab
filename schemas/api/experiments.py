"""Experiments over the API: one line of the list, and one with its plan, its evidence and the points of its picture."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.messages.base import Record, Timestamp
from schemas.records.decision import RunningExperiment
from schemas.records.evidence import ExperimentDecision, ExperimentPlan, HistoryPoint


class Ending(Record):
    decision: int = Field(ge=1, description="Its number in the ledger of decisions.")
    at: Timestamp
    by: str
    reason: str


class ExperimentSummary(Record):
    """`outcome`: running, promoted, settled, unharmed, rolled_back, inconclusive, aborted or replaced."""

    experiment_id: str
    agent_id: str
    kind: Literal["canary", "probation", "watch"]
    of: Literal["adapters", "programs"] = Field("adapters", description="What is compared.")
    treatment: str = Field(description="A version, or a program's name.")
    control: str
    outcome: str
    began_at: Timestamp
    began_by_decision: int = Field(ge=1)
    ended: Ending | None


class ExperimentDetail(ExperimentSummary):
    """`decision` has the verdict so far, the e-values and both arms; `history` is the picture, at most 400 points."""

    running: RunningExperiment = Field(description="As it began.")
    plan: ExperimentPlan | None
    decision: ExperimentDecision | None
    history: list[HistoryPoint]
    trouble: str | None = Field(description="Why there is no picture, where the logs do not give one.")
