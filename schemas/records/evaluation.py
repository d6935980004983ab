"""Evaluation: how versions of an adapter, or programs with one, answered a set of tasks that no training sees.

One file an evaluation, with every contestant of it.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from schemas.messages.base import AdapterVersion, AgentId, Identifier, Message, Record, Sha256, Timestamp, absent

SCHEMA = "evaluation.v1"


def name_contestant(version: str, program: str | None) -> str:
    """Return what people are shown, such as `tool-agent v1.0.3`."""
    return version if program is None else f"{program} {version}"


class EvaluationSet(Record):
    """A file of tasks. `sha256`: of its inputs, in no order."""

    name: str
    sha256: Sha256
    tasks: int = Field(ge=0, description="With different inputs.")


class RegisteredSet(Message):
    """A set in `adapters/<agent>/evaluations/sets/`: from `registered_at` on no training sees these inputs."""

    TYPE: ClassVar[str] = "evaluation_set.v1"

    schema_version: Literal["evaluation_set.v1"] = "evaluation_set.v1"
    set: EvaluationSet
    registered_at: Timestamp
    inputs: tuple[Sha256, ...]


class Interval(Record):
    """A mean over so many tasks, and the ends of its 95 % interval."""

    mean: float
    low: float
    high: float
    tasks: int = Field(ge=0)


class Comparison(Record):
    """Two versions on the same tasks; the difference is paired by task."""

    before: Interval
    after: Interval
    difference: Interval


class FamilyResult(Record):
    """`family` None: all tasks. `single`: what one sample is worth; `best`: the best-scored of `samples`."""

    family: str | None = None
    samples: int
    single: Comparison
    best: Comparison


class VersionResult(Record):
    """One contestant held against the baseline."""

    version: AdapterVersion
    program: Identifier | None = Field(None, exclude_if=absent)
    results: tuple[FamilyResult, ...]

    @property
    def contestant(self) -> str:
        return name_contestant(self.version, self.program)


class PassAt(Record):
    """The chance that at least one of `k` answers to a task is right; without bias, over tasks with `k` or more."""

    k: int = Field(ge=1)
    rate: Interval


class Solved(Record):
    """The tasks that a contestant solved, and what that took. `language` and `level` None: of all."""

    language: str | None = None
    level: str | None = None
    tasks: int = Field(ge=0, description="With an answer that has a score, or left unanswered, which solves nothing.")
    answers: int = Field(ge=0)
    right: int = Field(ge=0, description="Answers with full marks, or with what the task says passes.")
    pass_at: tuple[PassAt, ...]
    tokens_per_solved: float | None = Field(
        None, description="Tokens read and sampled for all answers, by right one; null without any, or where unknown."
    )
    seconds_per_solved: float | None = None
    cost_per_solved: float | None = Field(None, description="At the agent's prices; null where they are not known.")


class EvaluatedVersion(Record):
    """A contestant: a version, or a program with that version's model. `leaked`: tasks whose input lies in a window
    that the version, or one it was made from, was trained on. They count nowhere."""

    version: AdapterVersion
    program: Identifier | None = Field(None, exclude_if=absent)
    sha256: Sha256 | None = None
    leaked: int = Field(0, ge=0)
    unchecked: int = Field(0, ge=0, description="Bytes of its windows that are no longer in the log.")
    unanswered: int = Field(0, ge=0, description="Tasks that ended without an answer, or did not end.")
    unscored: int = Field(0, ge=0, description="Answers without a score, by a failure of ours.")
    solved: tuple[Solved, ...] = Field(
        (), exclude_if=lambda solved: not solved, description="Of all tasks, then by language, then by level."
    )

    @property
    def contestant(self) -> str:
        return name_contestant(self.version, self.program)


class Evaluation(Message):
    """`adapters/<agent>/evaluations/<name>.json`. `versions[0]` is the baseline of `results`."""

    TYPE: ClassVar[str] = SCHEMA

    schema_version: Literal["evaluation.v1"] = "evaluation.v1"
    name: Identifier
    agent_id: AgentId
    at: Timestamp
    set: EvaluationSet
    scorer: str = Field(description="Whose scores they are, with its revision.")
    versions: tuple[EvaluatedVersion, ...]
    results: tuple[VersionResult, ...]
