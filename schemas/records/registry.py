"""Registry: adapters/adapter_registry.json, every agent's adapters and programs, and where each stands.

It is derived from the decisions: replaying adapters/decisions.jsonl gives it. Its own invariants are checked whenever
one is made or read; which change is allowed when is not decided here.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from schemas.messages.base import (
    AdapterVersion,
    AgentId,
    BaseModelIdentity,
    Identifier,
    Message,
    Record,
    Sentences,
    Sha256,
    Timestamp,
    absent,
)
from schemas.messages.work import BASE_VERSION
from schemas.records.cascade import CascadeState
from schemas.records.decision import Contest, Ed25519, RunningExperiment, Who
from schemas.records.evidence import Change, ReplayRecord


class EntryState(Sentences):
    """Each value carries a sentence for people. A program that nobody tried or chose is in none of them."""

    TRAINED = "trained", "Published and registered; the gate has not judged it yet."
    RESEARCH = "research", "It answers the tasks of the research agent that it was trained for, and is no candidate."
    VALIDATED = "validated", "It loads on every replica, and its shadow replay proved no harm."
    ASKED = "asked", "An operator asked for its experiment, which waits for its turn and for what runners say of it."
    CANARY = "canary", "It answers a share of live traffic in a running experiment."
    STABLE = "stable", "It is the primary; a watch beside the one before it takes it back where it does harm."
    SUPERSEDED = "superseded", "It was the primary until another was promoted; a roll-back can restore it."
    ARCHIVED = "archived", "It is out of use for good; its folder may be removed once it has drained."
    REJECTED = "rejected", "It failed a check before it saw any traffic."
    ROLLED_BACK = "rolled_back", "It was taken out of traffic because it did harm, or because an operator said so."
    INCONCLUSIVE = "inconclusive", "Its experiment spent its budget without proof; the primary stayed."
    ABORTED = "aborted", "Its experiment could not be trusted, or was called off, through no fault of its own."

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        """Read `probation`, as older versions called what was promoted lately, as stable."""
        return cls.STABLE if value == "probation" else None


BEFORE_TRAFFIC = frozenset({EntryState.TRAINED, EntryState.VALIDATED})
"""States of versions that are still to be tried."""


NO_DECISION = "0" * 64
"""The hash that the first decision names as the one before it."""


class ExperimentOutcome(Record):
    """The end of an experiment of this version or program; the evidence is in the ledger, at line `decision`."""

    experiment_id: Identifier
    kind: Literal["canary", "probation", "watch"]
    verdict: Literal["promoted", "settled", "rolled_back", "inconclusive", "aborted", "unharmed", "replaced"]
    decision: int = Field(ge=1)
    at: Timestamp


class AdapterEntry(Record):
    """One version. The base model has neither sha256 nor folder; a removed folder is null, its record stays."""

    version: AdapterVersion
    state: EntryState
    decision: int = Field(0, ge=0, description="The decision that brought it into its state; 0: there from the start.")
    since: Timestamp | None = None
    sha256: Sha256 | None = None
    folder: str | None = Field(None, description="Relative to the folder of the adapters.")
    parent: AdapterVersion | None = None
    replaced: AdapterVersion | None = Field(None, description="The primary it took over from.")
    base: BaseModelIdentity | None = None
    since_base: Change | None = Field(None, description="What it has changed since v1.0.0; null: never measured.")
    outcomes: tuple[ExperimentOutcome, ...] = ()
    replayed: ReplayRecord | None = Field(
        None, exclude_if=absent, description="Of its shadow replay, for its experiment; absent: there was none."
    )
    research_agent: AgentId | None = Field(None, exclude_if=absent, description="The only agent that it answers for.")

    @property
    def name(self) -> str:
        return self.version

    @property
    def can_serve(self) -> bool:
        """The base model always can; an adapter while its folder is there."""
        return self.version == BASE_VERSION or self.folder is not None


class ProgramEntry(Record):
    """One of an agent's programs that was tried, or chosen by hand."""

    name: Identifier
    state: EntryState
    decision: int = Field(ge=1, description="The decision that brought it into its state.")
    since: Timestamp
    revision: Sha256 | None = Field(None, description="In its newest experiment; null: it was in none.")
    replaced: Identifier | None = Field(None, description="The program it took over from; null: all of them.")
    since_first: Change | None = Field(
        None, description="What it has changed since the agent's first program; null: never measured."
    )
    outcomes: tuple[ExperimentOutcome, ...] = ()
    can_serve: ClassVar[bool] = True
    """True for all: which programs runners have is not known here."""


Entry = AdapterEntry | ProgramEntry


class AgentPrograms(Record):
    """The programs of an agent. `primary` answers by default; null: the samples are dealt to all programs."""

    primary: Identifier | None = None
    candidate: Identifier | None = None
    previous: Identifier | None = Field(None, description="A roll-back restores it; null: the dealing to all.")
    entries: dict[Identifier, ProgramEntry] = Field(default_factory=dict)

    @property
    def asked(self) -> str | None:
        """The one whose experiment waits to begin."""
        return next((name for name, entry in self.entries.items() if entry.state is EntryState.ASKED), None)

    @model_validator(mode="after")
    def _states_fit(self) -> Self:
        _check_aliases(self)
        return self


class FrozenBy(Record):
    who: Who
    since: Timestamp
    reason: str


def _base_model() -> dict[str, AdapterEntry]:
    return {BASE_VERSION: AdapterEntry(version=BASE_VERSION, state=EntryState.STABLE)}


class CascadeStanding(Record):
    """The cascade of an agent as it was decided last."""

    state: CascadeState
    decision: int = Field(ge=1, description="That brought it into this state.")
    since: Timestamp
    frozen: FrozenBy | None = None


class AgentAdapters(Record):
    """One agent's versions and aliases. A fresh agent's primary is the base model."""

    primary: AdapterVersion = BASE_VERSION
    candidate: AdapterVersion | None = None
    previous: AdapterVersion | None = None
    frozen: FrozenBy | None = None
    cool_down_until: Timestamp | None = None
    distrusted: FrozenBy | None = Field(None, description="Since when the scorer is not trusted, and why.")
    anchored: int = Field(0, ge=0, description="Decision by which its scores became the measure; 0: from the start.")
    experiment: RunningExperiment | None = None
    watch: RunningExperiment | None = Field(
        None, description="Over the primary, or over the program that answers by default, beside whatever else runs."
    )
    programs: AgentPrograms = Field(
        default_factory=AgentPrograms,
        exclude_if=lambda programs: not programs.entries,
        description="Absent where none was tried or chosen: the samples are dealt to all.",
    )
    cascade: CascadeStanding | None = Field(
        None, exclude_if=absent, description="Where a big model answers in its place; absent: none does."
    )
    versions: dict[AdapterVersion, AdapterEntry] = Field(default_factory=_base_model)
    asked: ClassVar[None] = None
    """Versions are tried without being asked for."""

    @property
    def entries(self) -> dict[str, AdapterEntry]:
        return self.versions

    def contest(self, contest: Contest) -> AgentAdapters | AgentPrograms:
        """Return the holder of the entries and aliases of this contest."""
        return self if contest == "adapters" else self.programs

    @property
    def in_traffic(self) -> frozenset[str]:
        """Versions that answer tasks now, or would after a roll-back."""
        running = (version for one in self.running for version in (one.treatment, one.control))
        return frozenset(v for v in (self.primary, self.candidate, self.previous, *running) if v is not None)

    @property
    def running(self) -> tuple[RunningExperiment, ...]:
        """The experiment and the watch, as far as there are any."""
        return tuple(one for one in (self.experiment, self.watch) if one is not None)

    @model_validator(mode="after")
    def _exactly_one_primary(self) -> Self:
        _check_aliases(self)
        return self

    @model_validator(mode="after")
    def _what_serves_is_there(self) -> Self:
        for version in self.in_traffic:
            if version not in self.versions or not self.versions[version].can_serve:
                raise ValueError(f"{version} serves traffic, but is not registered or its folder was removed")
        return self


def _check_aliases(contest: AgentAdapters | AgentPrograms) -> None:
    """The primary alone is stable, and the candidate alone is a canary. Raises ValueError."""
    for alias, name, state in (
        ("primary", contest.primary, EntryState.STABLE),
        ("candidate", contest.candidate, EntryState.CANARY),
    ):
        found = [entry.name for entry in contest.entries.values() if entry.state is state]
        if found != ([name] if name is not None else []):
            raise ValueError(f"the {alias} is {name}, but in the state {state} are {found}")


class Registry(Message):
    """`revision` counts the decisions that are in it; the last three fields say where in the ledger it stands."""

    TYPE: ClassVar[str] = "adapter_registry.v1"

    schema_version: Literal["adapter_registry.v1"] = "adapter_registry.v1"
    revision: int = Field(0, ge=0)
    agents: dict[AgentId, AgentAdapters] = Field(default_factory=dict)
    ledger_bytes: int = Field(0, ge=0)
    ledger_sha256: Sha256 = NO_DECISION
    ledger_key: Ed25519 | None = Field(None, description="Which key signs the next decision; null: none were signed.")

    def agent(self, agent_id: str) -> AgentAdapters:
        """A fresh one for an agent nothing was decided about yet."""
        return self.agents.get(agent_id) or AgentAdapters()

    def encode(self) -> bytes:
        """Indented, with every alias written out, null or not: people read it."""
        return self.model_dump_json(indent=2).encode() + b"\n"
