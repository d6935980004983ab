"""Evaluation: how versions of an adapter answered a set of tasks that no training sees. One file an evaluation."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from schemas.messages.base import AdapterVersion, AgentId, Identifier, Message, Record, Sha256, Timestamp

SCHEMA = "evaluation.v1"


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
    """One version held against the baseline."""

    version: AdapterVersion
    results: tuple[FamilyResult, ...]


class EvaluatedVersion(Record):
    """`leaked`: tasks whose input lies in a window it, or one it was made from, was trained on. They count nowhere."""

    version: AdapterVersion
    sha256: Sha256 | None = None
    leaked: int = Field(0, ge=0)
    unchecked: int = Field(0, ge=0, description="Bytes of its windows that are no longer in the log.")
    unanswered: int = Field(0, ge=0, description="Tasks that ended without an answer, or did not end.")
    unscored: int = Field(0, ge=0, description="Answers without a score, by a failure of ours.")


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
