"""Agents that are registered while the fleet runs: what is asked, what became of it, and what runners say of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StringConstraints

from schemas.api.jobs import Money
from schemas.messages.base import AdapterVersion, AgentId, Identifier, KeptApart, Record, Score, Sentences, Timestamp

MOST_AGENTS = 1000
MOST_OF_ONE = 100
"""Agents that a submitter may have registered at a time."""
ProgramText = Annotated[
    dict[str, Any],
    Field(
        description="Its program, as `[programs.NAME]` of a file of programs declares one. It binds no folder of a "
        "runner; its files are in `data`, its image is one that is pulled."
    ),
]
ToolPolicy = Annotated[
    dict[Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,40}$")], Literal["allow", "deny"]], Field(max_length=100)
]
Reason = Annotated[str, StringConstraints(max_length=1000)]


class AgentKind(Sentences):
    SIMULATION = "simulation", "Its tasks teach, and experiments count them."
    EVALUATION = "evaluation", "Its tasks teach nothing, and no experiment counts them."
    RESEARCH = "research", "By the one version that it names. Its tasks teach versions of its own, never candidates."
    REAL = "real", "As a simulation, within a budget and a tool policy; its jobs may wait for an operator's approval."

    @property
    def kept_apart(self) -> KeptApart:
        """Return how its tasks are kept apart; None where they teach its model."""
        if self is AgentKind.EVALUATION:
            return True
        return "research" if self is AgentKind.RESEARCH else None


class AgentState(Sentences):
    INSTALLING = "installing", "Runners get it ready; its jobs wait."
    READY = "ready", "Runners answer its tasks."
    BROKEN = "broken", "A runner can't run it; its jobs wait, and runners retry each minute."
    RETIRED = "retired", "It takes no further jobs; those that it has go on."


class AgentRules(Record):
    """The part of an agent that may be changed."""

    kind: AgentKind = Field(AgentKind.SIMULATION, description="Whether its tasks teach, and experiments count them.")
    program: ProgramText
    adapter_version: AdapterVersion | None = Field(
        None, description="The version of its model that answers; a research agent needs one."
    )
    budget: Money | None = Field(None, description="The most that all of its jobs may cost; a real agent needs one.")
    tools: StrictBool = Field(True, description="Whether its program may have the tools of Ratchet.")
    tool_policy: ToolPolicy | None = Field(
        None,
        description="Which tools of Ratchet its program may call, by the names that `ratchet tools list` has; a tool "
        "that is not named is allowed as it usually is. A real agent whose program has tools needs it.",
    )
    needs_approval: StrictBool = Field(False, description="Each of its jobs waits until an operator resumes it.")


class NewAgent(AgentRules):
    name: AgentId = Field(description="Its name, which no other registered agent has.")
    model: AgentId | None = Field(None, description="The fleet's agent whose model it uses; the default one if absent.")


class AgentChange(Record):
    """Fields that are absent stay as they are."""

    kind: AgentKind | None = None
    program: ProgramText | None = None
    adapter_version: AdapterVersion | None = None
    budget: Money | None = None
    tools: StrictBool | None = None
    tool_policy: ToolPolicy | None = None
    needs_approval: StrictBool | None = None


class RegisteredAgent(AgentRules):
    name: AgentId
    model: AgentId
    owner: str | None = Field(description="Subject of the token that registered it; null: anybody may use it.")
    revision: int = Field(ge=1, description="Counts the changes of its program.")
    state: AgentState
    reason: str = Field(description="Why it is in this state, in a sentence.")
    created_at: Timestamp
    changed_at: Timestamp


class AgentMetrics(Record):
    """Figures of an agent's jobs, over those that are kept."""

    name: AgentId
    jobs: int = Field(ge=0, description="Those that have not ended.")
    waiting: int = Field(ge=0)
    released: int = Field(ge=0)
    ok: int = Field(ge=0)
    failed: int = Field(ge=0)
    expired: int = Field(ge=0)
    cancelled: int = Field(ge=0)
    ended_last_minute: int = Field(ge=0)
    mean_score: Score | None = Field(description="Of the newest hundred answers; null where there is none.")
    prompt_tokens: int = Field(ge=0)
    sampled_tokens: int = Field(ge=0)
    reserved: Money
    spent: Money


class AgentReport(Record):
    """A runner's word on how far it is with an agent."""

    name: AgentId
    revision: int = Field(ge=1, le=2**53)
    state: Literal["installing", "ready", "broken"]
    reason: Reason | None = None


class RunnerReport(Record):
    runner: Identifier
    agents: Annotated[tuple[AgentReport, ...], Field(max_length=2 * MOST_AGENTS)] = ()
    keeps_programs: StrictBool = Field(False, description="If true, programs of the revisions it reports are left out.")


class AgentsProgram(Record):
    """The program of an agent, for runners."""

    name: AgentId
    model: AgentId
    revision: int
    program: dict[str, Any] | None = Field(None, description="Null for a revision that the runner has.")


class AgentsPrograms(Record):
    items: tuple[AgentsProgram, ...]
