"""Training over the API: what is asked, and a run from its request to its outcome."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from schemas.messages.base import JSON_NUMBER, AdapterVersion, AgentId, Identifier, Record, Seconds, Timestamp

LARGEST = 2**53 - 1
"""The largest number that JSON holds exactly everywhere: nine petabytes of log."""

Place = Annotated[int, Field(ge=0, le=LARGEST), JSON_NUMBER]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1), JSON_NUMBER]
RunState = Literal["queued", "running", "trained", "refused", "failed"]
RUN_STATES: dict[RunState, str] = {
    "queued": "It was asked for; no trainer has begun it.",
    "running": "A trainer has begun it; where that one died, another takes it up.",
    "trained": "It has made an adapter, which the gate is to judge.",
    "refused": "The data or the request can't support it; the same again would be refused again.",
    "failed": "Something broke on the way; it may pass when asked for again.",
}


class TrainRunRequest(Record):
    """A TrainRequest, whose id may be left out; what is not given is the trainer's own choice."""

    agent_id: AgentId = Field(description="The agent to train a new adapter for.")
    request_id: Identifier | None = Field(None, description="Unique per run; the same one again is not trained twice.")
    algorithm: Identifier | None = Field(None, description="grpo if absent; weighted-sft, kto, … or a registered one.")
    parent_version: AdapterVersion | None = Field(None, description="Start from it; from the primary if absent.")
    since: Place | None = Field(None, description="Read the log of interactions from this byte on.")
    until: Place | None = Field(None, description="Read it to before this byte; to its end if absent.")
    feedback_until: Place | None = Field(None, description="Read the log of feedback to before this byte; to its end.")
    hyperparameters: dict[str, JsonValue] | None = Field(None, description="Checked by the algorithm.")
    seed: Seed | None = Field(None, description="Equal seeds and data give equal adapters.")


class RunProgress(Record):
    """The progress, as reported by the process that has the run in hand."""

    stage: str = Field(description="reading, selected, training … as the run reports it.")
    step: int | None = Field(description="Steps done.")
    steps: int | None = Field(description="Steps there are.")
    share: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="Of the stage that is done, where that can be told: of the log, the samples, the training."
    )
    seconds_left: Seconds | None = Field(
        description="To the last step, at the pace of this attempt and by the tokens of the steps to come; null before "
        "it has one."
    )
    at: Timestamp = Field(description="When it last reported: every few seconds, and at each stage.")


class RunView(Record):
    """One run; the figures are there once the trainer has them."""

    run_id: str
    agent_id: AgentId
    state: RunState = Field(description=" ".join(f"{state}: {meaning}" for state, meaning in RUN_STATES.items()))
    asked_by: str | None = Field(description="orchestrator, operator, api:<caller> … as the request says.")
    why: str | None = Field(description="What brought it, where the fleet asked by itself.")
    algorithm: str | None = Field(description="Null where only the run's end was heard.")
    parent_version: AdapterVersion | None = Field(description="Null until it is chosen.")
    hyperparameters: dict[str, JsonValue]
    seed: int | None
    asked_at: Timestamp | None = Field(description="Null where only the run's end was heard.")
    ended_at: Timestamp | None
    seconds: Seconds | None = Field(description="From the request to the end; null while it lasts.")
    attempts: int = Field(ge=0, description="How often it was begun since it last came further.")
    progress: RunProgress | None = Field(description="Null unless it runs.")
    adapter_version: AdapterVersion | None = Field(description="What it trained.")
    adapter_sha256: str | None
    reason: str | None = Field(description="Of a refused or failed run: why, with the numbers.")
    counts: dict[str, int] = Field(description="Groups used, and dropped by reason.")
    metrics: dict[str, JsonValue]

    @property
    def ended(self) -> bool:
        return self.state not in ("queued", "running")


class RunDetail(RunView):
    curves: dict[str, list[tuple[float, float]]] = Field(
        description="Name → [step, value], as far as it came; those that are zero are left out."
    )
