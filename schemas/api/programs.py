"""An agent's programs side by side, over the API."""

from __future__ import annotations

from pydantic import Field

from schemas.api.status import Interval
from schemas.messages.base import Record, Timestamp
from schemas.messages.reward import ScorerIdentity


class ProgramFigures(Record):
    """Of one program by one scorer, over its rollouts in the log. Means are null where no rollout told."""

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
