"""Standings of a leaderboard of evaluations: a program or a version on a set of tasks."""

from __future__ import annotations

from pydantic import Field

from schemas.messages.base import AdapterVersion, AgentId, Identifier, Record, Timestamp
from schemas.records.evaluation import EvaluationSet, Interval


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
