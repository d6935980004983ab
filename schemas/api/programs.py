"""An agent's programs over the API: side by side, where each stands, and what an operator asks for."""

from __future__ import annotations

from pydantic import Field

from schemas.api.adapters import Reason
from schemas.api.status import Interval
from schemas.messages.base import AgentId, Identifier, Record, Seconds, Sha256, Timestamp
from schemas.messages.reward import ScorerIdentity
from schemas.messages.runner_rollouts import RolloutProgress
from schemas.records.decision import RunningExperiment
from schemas.records.registry import ProgramEntry


class RunningRollout(Record):
    task_id: Identifier
    agent_id: AgentId
    program: Identifier
    sample: int = Field(ge=0, description="Which of its group.")
    started_at: Timestamp
    ends_within_s: Seconds = Field(description="It is ended then, so that what it has can still be scored.")
    calls: int = Field(ge=0, description="Of the model, so far.")
    sampled_tokens: int = Field(ge=0)


class RunningRollouts(Record):
    items: list[RunningRollout] = Field(description="The oldest first.")
    ended: list[RolloutProgress] = Field(description="The newest that ended here, at most 128, the oldest first.")
    waiting: int = Field(ge=0, description="Rollouts that wait for their turn.")
    at_once: int = Field(ge=1, description="That this runner runs side by side.")


class FleetRollout(RolloutProgress):
    """`runner` has it, or had it."""

    runner: Identifier


class RunnerView(Record):
    """A runner that told of itself within the last seconds."""

    runner: Identifier
    at_once: int = Field(ge=1)
    running: int = Field(ge=0)
    waiting: int = Field(ge=0)


class FleetRollouts(Record):
    """The rollouts heard of from runners. Nothing is kept over a restart; the log has the results."""

    items: list[FleetRollout] = Field(description="Those that run, and the newest that ended; the oldest first.")
    runners: list[RunnerView]


class ProgramFigures(Record):
    """Figures of one program by one scorer, over its rollouts in the log. Means are null where no rollout told."""

    agent_id: str
    program: str
    scorer: ScorerIdentity | None = Field(
        None, description="Who scored: scores by different ones, or revisions of one, can't be held against each other."
    )
    rollouts: int = Field(ge=0)
    scored: int = Field(ge=0, description="Rollouts with a score.")
    score: Interval | None = Field(
        description="Mean score over tasks: of each task the mean over this program's rollouts; null: none was scored."
    )
    ended: dict[str, int] = Field(description="Rollouts by how they ended: finished, failed, limit, lost.")
    breaks: dict[str, int] = Field(description="How often each kind of break split a conversation, in all rollouts.")
    calls: float | None = Field(description="Of the model, a rollout.")
    sampled_tokens: float | None = Field(description="That the model sampled, a rollout.")
    prompt_tokens: float | None = Field(
        description="That the model was given, a rollout; what it had seen before counts with each call."
    )
    seconds: float | None = Field(description="A rollout took, the wait for its turn left out.")


class ProgramsCompared(Record):
    """`since`: of the oldest line that was read; null where the log is empty."""

    items: list[ProgramFigures] = Field(
        description="By agent, scorer and program; of an agent's scorers the one that scored last comes first."
    )
    since: Timestamp | None
    lines: int = Field(ge=0, description="Lines of the log that were read.")


class ProgramView(ProgramEntry):
    """One that was tried, or chosen by hand, and where it stands."""

    sentence: str = Field(description="What the state means.")
    aliases: list[str] = Field(description="Of: primary, candidate, previous.")
    changed: bool | None = Field(
        description="Whether runners have another revision than its newest experiment was about; null: not known."
    )


class ProgramsStanding(Record):
    """The program that answers an agent's tasks, and the one that is tried.

    `primary` null: the samples are dealt to all.
    """

    agent_id: AgentId
    revision: int = Field(ge=0, description="Of the registry: how many decisions are in it.")
    primary: Identifier | None
    candidate: Identifier | None
    asked: Identifier | None = Field(description="The one whose experiment waits to begin.")
    previous: Identifier | None
    cool_down_until: Timestamp | None
    experiment: RunningExperiment | None = Field(description="Of programs; one of adapters is not shown here.")
    items: list[ProgramView] = Field(description="In the order in which they were first tried or chosen.")
    runs: dict[Identifier, Sha256 | None] = Field(
        description="Programs that runners have, with their revision; null: not all runners have the same. Empty where "
        "none was heard: then nobody looked whether one has a program that is named."
    )


class ProgramRequest(Record):
    program: Identifier = Field(description="The name of a program that runners have.")
    reason: Reason = Field(description="Why: recorded with the decision, under the caller's name.")


class ProgramRollBackRequest(Record):
    program: Identifier | None = Field(
        None, description="What leaves traffic; the one that answers by default if absent and none is tried."
    )
    reason: Reason = Field(description="Why: recorded with the decision, under the caller's name.")
