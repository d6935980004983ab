"""Experiments and evaluations over the API: an experiment with its plan, its evidence and the points of its picture;
the standings of a leaderboard of evaluations."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.messages.base import AdapterVersion, AgentId, Identifier, Record, Timestamp
from schemas.records.decision import RunningExperiment
from schemas.records.evaluation import EvaluationSet, Interval
from schemas.records.evidence import ExperimentDecision, ExperimentPlan, HistoryPoint


class Standing(Record):
    """A contestant on one set, by one scorer, in its newest evaluation there."""

    agent_id: AgentId
    set: EvaluationSet
    scorer: str
    version: AdapterVersion
    program: Identifier | None = Field(description="The program that worked with the version; null: none.")
    rank: int = Field(ge=1, description="One more than those whose whole interval lies above; ties share it.")
    is_tied: bool
    score: Interval = Field(description="Mean worth of one answer, with its 95 % interval.")
    cost_per_solved: float | None = Field(description="Of a solved task; null where nothing was right, or no price.")
    tokens_per_solved: float | None
    unanswered: int = Field(ge=0)
    evaluation: Identifier = Field(description="Its file: adapters/<agent>/evaluations/<this>.json.")
    at: Timestamp


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
