"""The fleet at a glance, its queues, and the last lines of its log, over the API."""

from __future__ import annotations

from pydantic import Field

from schemas.api.cascade import CascadeView
from schemas.messages.base import AdapterVersion, Identifier, Metadata, Record, Score, Timestamp
from schemas.messages.result import ResultStatus
from schemas.messages.reward import ScoreStatus
from schemas.messages.task import Prompt
from schemas.records.evidence import Change


class TaskFigures(Record):
    """`known` and `open` are of all time; the counts and rates are since this orchestrator started."""

    known: int = Field(ge=0)
    open: int = Field(ge=0)
    oldest_open_s: float = Field(ge=0)
    answered: int = Field(ge=0)
    failed: int = Field(ge=0)
    expired: int = Field(ge=0)
    cancelled: int = Field(ge=0)
    repeated: int = Field(ge=0, description="Tasks that were known already.")
    refused: int = Field(ge=0, description="Tasks that went to the dead letters.")
    per_s: float | None = Field(description="Closed a second, over the last minute.")


class StageFigure(Record):
    """Seconds, over the last minute; null where no task went through it."""

    stage: str = Field(description="queue, generate, score_queue, score or total.")
    count: int = Field(ge=0)
    p50: float | None
    p95: float | None


class ScoreFigure(Record):
    agent_id: str
    adapter_version: str
    samples: int = Field(ge=0, description="Scored samples since this orchestrator started.")
    mean: float


class Interval(Record):
    """A mean over tasks with its 95 % interval (normal approximation); null ends: too few tasks."""

    tasks: int = Field(ge=0)
    mean: float
    low: float | None
    high: float | None


class QualityFigure(Record):
    """The quality of a version's answers to users, since this orchestrator started. A task is one observation."""

    agent_id: str
    adapter_version: str
    served: Interval = Field(description="Score of the answer the user got: the best of its group.")
    single: Interval = Field(description="Score of a single answer: the mean of its group.")
    distinct: Interval | None = Field(description="Different answers in a group; null: no group of more than one.")


class ReplicaView(Record):
    """A process of an agent that reported within the last half minute."""

    replica: str
    loaded: list[AdapterVersion]
    refused: dict[AdapterVersion, str]


class LearningFigures(Record):
    """The way to the next training."""

    groups: int = Field(ge=0, description="Groups with something to learn from, since the last training.")
    wanted: int = Field(ge=0, description="So many bring a training; 0: it is not asked for by count.")
    pending: str | None = Field(description="Id of the training that was asked for and has not ended.")


class HeldUp(Record):
    """A candidate that gets no further: the gate could not judge it, or a replica runs another model than its own."""

    name: str = Field(description="An adapter's version, or a program.")
    reason: str
    tries: int = Field(ge=0, description="Of the gate, since this orchestrator started; 0: it was not asked at all.")
    again_at: Timestamp | None = Field(description="When it is tried again; null: once the agent runs its model.")

    @property
    def sentence(self) -> str:
        """The reason, for people."""
        if self.again_at is None:
            return f"{self.name} is not tried: {self.reason}"
        times = f" {self.tries} times" if self.tries > 1 else ""
        again = f"it is tried again from {self.again_at:%H:%M:%S} UTC on"
        return f"{self.name} could not be validated{times}: {self.reason}; {again}"


class WatchFigures(Record):
    """The watch over the primary, or over the program that answers by default."""

    experiment_id: str
    treatment: Identifier = Field(description="The version, or the program, that is watched.")
    control: Identifier = Field(description="What it is watched beside.")
    units: int = Field(ge=0, description="Finished units; it begins anew when its budget is spent.")
    harm: float = Field(description="E-value for harm; at the threshold the primary is rolled back.")
    threshold: float


class SamplesFigures(Record):
    """Answers sampled for tasks that do not say how many."""

    now: int = Field(ge=1)
    usual: int = Field(ge=1, description="The fleet's group.")
    least: int = Field(ge=1, description="No group is smaller; the same as `usual` where none may be.")
    saved_samples: int = Field(ge=0)
    saved_tokens: int = Field(ge=0, description="That many fewer samples, of the mean length of their group.")


class AgentFigures(Record):
    agent_id: str
    primary: AdapterVersion
    candidate: AdapterVersion | None
    program: str | None = Field(description="That answers by default; null: the samples are dealt to all there are.")
    program_candidate: str | None = Field(description="That is tried against it.")
    shared_learning: bool = Field(False, description="It learns from the tasks of all tenants.")
    frozen: bool
    distrusted: bool = Field(description="The scorer has drifted: training waits.")
    unaudited: str | None = Field(
        description="A model scores and no auditor looks at it: what may happen, and what to set. Null before "
        "the first score since the orchestrator's start."
    )
    experiment_id: str | None
    units: int | None = Field(description="Finished units of the running experiment.")
    gain: float | None = Field(description="E-value for better in score; at the threshold it promotes.")
    harm: float | None = Field(description="E-value for harm; at the threshold it rolls back.")
    threshold: float | None = Field(description="E-value that decides the running experiment: 1 / alpha.")
    watch: WatchFigures | None
    since_base: Change | None = Field(description="What the primary has changed since v1.0.0; null: never measured.")
    held_up: list[HeldUp] = Field(description="Candidates that wait for something else than traffic, and for what.")
    replicas: list[ReplicaView]
    learning: LearningFigures
    samples: SamplesFigures
    cascade: CascadeView | None = Field(description="Where a big model answers in its place; null: none does.")


class Status(Record):
    at: Timestamp
    started_at: Timestamp
    ready: bool
    trouble: str | None
    no_copies: str | None = Field(
        None,
        description="With RATCHET_EXTERNAL_SCORER: Rewards wait for copies of their Responses that do not come; why, "
        "and what to do. Null where none waits.",
    )
    tasks: TaskFigures
    stages: list[StageFigure]
    scores: list[ScoreFigure]
    quality: list[QualityFigure]
    agents: list[AgentFigures]
    dead_letters: int | None = Field(description="Null while the broker can't say.")
    unroutable: int | None
    has_manager: bool = Field(False, description="Whether it has a manager, which takes jobs.")


class QueueView(Record):
    """A queue of the topology, or a rung of the retry ladder, as the broker sees it."""

    name: str
    about: str
    message: str = Field(description="The type of message it holds.")
    producers: list[str]
    consumers: list[str] = Field(description="Who is meant to consume it.")
    messages: int | None = Field(description="Ready for delivery; null: the broker has no such queue.")
    consuming: int = Field(ge=0, description="Consumers it has now.")
    max_length: int | None
    retry_after_s: float | None = Field(description="Of a rung of the retry ladder: how long a message stays.")


class Queues(Record):
    """`at`: when the broker was asked; asked at most once a second."""

    at: Timestamp
    items: list[QueueView]


class LogLine(Record):
    """One sample as it was logged; one line with nulls of a task that ended without an answer."""

    task_id: str
    input: Prompt
    response: str | None
    score: Score | None
    agent_id: str
    adapter_version: str
    timestamp: Timestamp
    metadata: Metadata
    status: ResultStatus = "ok"
    reason: str | None = Field(None, description="Of a task that failed, expired or was cancelled.")
    sample: int | None = Field(description="Index in the group.")
    group_size: int
    score_status: ScoreStatus | None = None
    score_reason: str | None = Field(None, description="What the scorer says about the score.")


class LogTail(Record):
    """The oldest first. Only of the file that is being written: right after a rotation there are few lines."""

    items: list[LogLine]
    next: None = None
