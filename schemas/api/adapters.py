"""Adapters over the API: each agent's versions and aliases, one version whole, and what an operator asks for."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from schemas.messages.base import AdapterVersion, AgentId, Record, Timestamp
from schemas.records.adapter_card import AdapterCard
from schemas.records.decision import Decision, RunningExperiment
from schemas.records.evidence import Change
from schemas.records.registry import EntryState, ExperimentOutcome, FrozenBy

Reason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)]
CurvePoint = tuple[float, float]


class VersionView(Record):
    """One version and where it stands."""

    version: AdapterVersion
    state: EntryState
    sentence: str = Field(description="What the state means; of a candidate that is held up, why, and until when.")
    aliases: list[str] = Field(description="Of: primary, candidate, previous.")
    since: Timestamp | None
    decision: int = Field(ge=0, description="The decision that brought it into its state; 0: there from the start.")
    parent: AdapterVersion | None
    replaced: AdapterVersion | None = Field(description="The primary it took over from.")
    sha256: str | None
    can_serve: bool = Field(description="False once its folder was removed.")
    since_base: Change | None = Field(description="What it has changed since v1.0.0; null: never measured.")
    outcomes: list[ExperimentOutcome]


class AgentView(Record):
    """One agent's versions, the oldest first; following `parent` gives the lineage."""

    agent_id: AgentId
    revision: int = Field(ge=0, description="Of the registry: how many decisions are in it.")
    primary: AdapterVersion
    candidate: AdapterVersion | None
    previous: AdapterVersion | None
    frozen: FrozenBy | None
    distrusted: FrozenBy | None = Field(
        description="Since when the scorer is not trusted, and why: no training is asked for, no experiment starts."
    )
    cool_down_until: Timestamp | None
    experiment: RunningExperiment | None
    watch: RunningExperiment | None = Field(description="Over the stable primary, beside whatever else runs.")
    versions: list[VersionView]
    older: int = Field(
        0, ge=0, description="Versions before those that are not among them, where only some were asked for."
    )
    joins: dict[AdapterVersion, AdapterVersion] = Field(
        default_factory=dict,
        description="By version: the nearest of its ancestors that is among them, where its parent is not.",
    )


class Verification(Record):
    """A check of the decisions, the registry and every adapter: are they as decided, and by whom?"""

    ok: bool
    faults: list[str] = Field(description="Each a sentence that says what to do.")
    notes: list[str] = Field(description="What could not be checked of the logs, which are not read over the API.")
    decisions: int = Field(ge=0, description="That can be trusted: up to the first fault of the ledger.")
    signed: int = Field(ge=0, description="Of them; older ones are chained only.")
    key: str | None = Field(description="The public key that signs the next one, in base64url.")
    sha256: str = Field(description="Of the last one that can be trusted.")


class TrainingView(Record):
    """The trainer's record beside an adapter: groups used and dropped by reason, and the curves by training step."""

    counts: dict[str, float]
    curves: dict[str, list[CurvePoint]] = Field(description="Name → [step, value]; those that are zero are left out.")


class VersionDetail(VersionView):
    """With its card, its training, and every decision on it, the oldest first."""

    agent_id: AgentId
    card: AdapterCard | None
    training: TrainingView | None
    decisions: list[Decision]


class PromoteRequest(Record):
    version: AdapterVersion = Field(description="Which becomes the primary.")
    reason: Reason = Field(description="Why: recorded with the decision, under the caller's name.")


class RollBackRequest(Record):
    version: AdapterVersion | None = Field(
        None, description="What leaves traffic; the primary if absent and there is no candidate."
    )
    to: AdapterVersion | None = Field(None, description="What takes a primary's place; the previous one if absent.")
    reason: Reason = Field(description="Why: recorded with the decision, under the caller's name.")


class FreezeRequest(Record):
    reason: Reason = Field(description="Why: recorded with the decision, under the caller's name.")
