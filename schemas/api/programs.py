"""An agent's programs side by side, over the API."""

from __future__ import annotations

from pydantic import Field

from schemas.api.status import Interval
from schemas.messages.base import Record, Timestamp


class ProgramFigures(Record):
    """Of one program, over its rollouts in the log. Means are null where no rollout told."""

    agent_id: str
    program: str
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

    items: list[ProgramFigures] = Field(description="By agent and program.")
    since: Timestamp | None
    lines: int = Field(ge=0, description="Lines of the log that were read.")
