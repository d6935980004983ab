"""The `data` of each kind of event on the stream."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, GetJsonSchemaHandler, create_model
from pydantic.json_schema import JsonSchemaValue

from schemas.api.programs import FleetRollout
from schemas.messages.adapter_event import AdapterMove
from schemas.messages.base import Record, Score, Timestamp
from schemas.messages.result import ResultStatus
from schemas.messages.work import Decision

EventKind = Literal[
    "task.settled", "decision", "experiment", "queues", "adapter", "training", "rollout", "agent", "approval", "gap"
]


class TaskSettled(Record):
    """`task.settled`: a task was closed."""

    task_id: str
    sequence: int
    agent_id: str
    status: ResultStatus
    score: Score | None
    adapter_version: str
    is_candidate: bool
    experiment_id: str | None
    seconds: float
    at: Timestamp


class AgentMoved(Record):
    """`agent`: the figures of an agent over the last minute, about once a second where they change."""

    agent_id: str
    registered_agent: str | None = Field(description="The one whose program used its model; null: its own tasks.")
    ended: int = Field(ge=0, description="Tasks that ended.")
    without_answer: int = Field(ge=0, description="Of these, failed, expired or cancelled.")
    mean_score: Score | None
    mean_seconds: float | None = Field(description="From admission to the log.")


class DecisionMade(Record):
    """`decision`: a line was added to the ledger of decisions, by whomever."""

    sequence: int
    agent_id: str
    kind: str
    version: str | None
    who: str
    reason: str
    at: Timestamp


class ExperimentMoved(Record):
    """`experiment`: more units finished; the picture is at /v1/experiments/{experiment_id}."""

    experiment_id: str
    agent_id: str
    units: int
    candidate_units: int
    share: float
    gain: float
    harm: float
    verdict: str


class QueueDepth(Record):
    name: str
    messages: int
    consumers: int


class QueuesLooked(Record):
    """`queues`: depth and consumers of each, every few seconds where one of them has changed."""

    items: list[QueueDepth]


class AdapterMoved(Record):
    """`adapter`: which adapters answer has changed."""

    agent_id: str
    event: AdapterMove
    version: str | None
    reason: str | None
    primary: str
    candidate: str | None
    revision: int


class TrainingMoved(Record):
    """`training`: a training was asked for, has come further, or has ended. Its curves are at /v1/trainings/{id}."""

    agent_id: str
    request_id: str
    state: Literal["requested", "running", "trained", "refused", "failed"]
    version: str | None
    reason: str | None
    step: int | None = Field(None, description="Steps done, while it runs.")
    steps: int | None = None


class RolloutMoved(FleetRollout):
    """`rollout`: a program's rollout has begun, called the model, or ended."""


class ApprovalMoved(Record):
    """`approval`: a program asked a person, or its question has an answer."""

    approval_id: str
    task_id: str
    agent_id: str
    sample: int
    question: str
    decision: Decision | None
    given_by: str | None


class Gap(Record):
    """`gap`: the client was too slow, or came back too late: so many events are lost to it. Read the lists again."""

    missed: int = Field(ge=0)


class JsonText:
    """Marks a model that goes over the wire as JSON in a string, for its schema."""

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "contentMediaType": "application/json", "contentSchema": handler(core_schema)}


def stream_event_model(kind: EventKind, data: type[BaseModel]) -> type[BaseModel]:
    """One server-sent event as it is on the stream: `id` is what Last-Event-ID gives back."""
    fields: dict[str, Any] = {
        "id": (str, ...),
        "event": (Literal[kind], ...),
        "data": (Annotated[data, JsonText()], ...),
    }
    return create_model(f"{data.__name__}Event", __doc__=data.__doc__, **fields)
