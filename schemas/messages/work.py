"""Work: a Task as the orchestrator admitted it. Its JSON is also the write-ahead line in logs/assignments.jsonl."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from schemas.messages.base import (
    AgentId,
    Identifier,
    KeptApart,
    LogEpoch,
    Record,
    Sha256,
    StopStrings,
    Timestamp,
    absent,
)
from schemas.messages.task import Task


class Grammar(Record):
    """`text` is in llguidance's dialect of Lark."""

    text: str
    sha256: Sha256 = Field(description="Of the text.")


class SpanGrammar(Grammar):
    """The grammar of some spans of a segment."""

    spans: tuple[int, ...] = Field(min_length=1, description="Their numbers. Each span began the grammar anew.")


BASE_VERSION = "v1.0.0"
"""The base model with no adapter."""


class RoleVersion(Record):
    """The agent that plays a role of a program, and the version of its adapter that answers the role's calls."""

    agent_id: AgentId
    adapter_version: str = BASE_VERSION
    adapter_sha256: Sha256 | None = None


Decision = Literal["approve", "reject", "edit", "expired"]
"""A person's answer to a question, or that nobody gave one in time."""


class GivenApproval(Record):
    """An answer to a question of one of the rollouts."""

    approval_id: Identifier
    sample: int = Field(ge=0, description="Which of the group asked.")
    decision: Decision
    text: str = Field("", max_length=65_536)


class Arm(Record):
    """The adapter and the program that answer this task, and the probability with which they were chosen."""

    adapter_version: str = BASE_VERSION
    adapter_sha256: Sha256 | None = None
    experiment_id: Identifier | None = None
    is_candidate: bool = False
    propensity: float = Field(1.0, gt=0.0, le=1.0, description="Probability with which this arm was assigned.")
    sequence: int = Field(ge=0, description="Assignment order: 0, 1, 2 … over all tasks of the fleet.")
    program: Identifier | None = Field(
        None,
        exclude_if=absent,
        description="Which of the agent's programs answers the whole group; absent: they are dealt to its samples.",
    )
    program_revision: Sha256 | None = Field(
        None, exclude_if=absent, description="In an experiment of programs: a runner that has another one answers none."
    )
    roles: dict[Identifier, RoleVersion] | None = Field(
        None,
        exclude_if=absent,
        description="Of an agent whose program has roles: who answers calls of each. The first is the agent itself.",
    )


class Sampling(Record):
    """Parameters of sampling. `top_k` 0 and `top_p` 1 filter nothing: logged log-probabilities are the policy's."""

    n: int = Field(1, ge=1, le=64, description="Samples in the group.")
    lowered_from: int | None = Field(
        None,
        ge=1,
        exclude_if=absent,
        description="The fleet's group, where fewer samples are proved enough; else absent.",
    )
    temperature: float = Field(1.0, ge=0.0, le=5.0)
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    top_k: int = Field(0, ge=0)
    max_tokens: int = Field(256, ge=1)
    stop: StopStrings | None = Field(
        None, exclude_if=absent, description="Answers end before any of these; the tokens that wrote it are kept."
    )
    grammar: Grammar | None = Field(
        None,
        exclude_if=absent,
        description="Answers were sampled under it, and the log-probabilities are those among the tokens it allowed.",
    )


class Work(Task):
    """The Task (its fields stand at the top, so an agent may read only `task_id` and `input`) and how to answer it."""

    TYPE: ClassVar[str] = "work.v1"

    agent_id: AgentId
    deadline: Timestamp
    arm: Arm
    sampling: Sampling
    admitted_at: Timestamp
    reply_to: str | None = Field(None, max_length=255, description="AMQP queue that also gets the Result.")
    correlation_id: str | None = Field(None, max_length=255)
    owner: str | None = Field(
        None, max_length=133, exclude_if=absent, description="Subject of the API token that it was submitted with."
    )
    kept_apart: KeptApart = Field(
        None,
        exclude_if=absent,
        description="It teaches nothing: its asker says so, or its agent does not learn from its tenant; `research`: "
        "nothing but the versions of the research agent that answers it.",
    )
    shared_learning: Literal[True] | None = Field(
        None, exclude_if=absent, description="It teaches an agent that learns from the tasks of all tenants."
    )
    approvals: tuple[GivenApproval, ...] | None = Field(
        None, exclude_if=absent, description="Of a task whose rollouts asked people: the answers so far."
    )
    epoch: LogEpoch = None
