"""The entries that compete for an agent's tasks: the table of moves between their states, aliases and outcomes. Pure.

Versions of the adapter and programs are moved alike. A move may take several of these steps, so an agent is not checked
in between: `check_invariants` looks at the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from ratchet.service.errors import NotAllowed
from schemas.records.decision import Contest, Decision, RunningExperiment
from schemas.records.registry import (
    AdapterEntry,
    AgentAdapters,
    AgentPrograms,
    Entry,
    EntryState,
    ExperimentOutcome,
    ProgramEntry,
)

Verdict = Literal["promoted", "settled", "rolled_back", "inconclusive", "aborted", "unharmed", "replaced"]


class Row(NamedTuple):
    both: tuple[EntryState, ...] = ()
    adapters: tuple[EntryState, ...] = ()
    programs: tuple[EntryState, ...] = ()


_S = EntryState

MOVES: Mapping[EntryState | None, Row] = {
    None: Row(adapters=(_S.TRAINED, _S.RESEARCH, _S.REJECTED), programs=(_S.ASKED, _S.STABLE)),
    _S.TRAINED: Row(adapters=(_S.VALIDATED, _S.REJECTED)),
    _S.RESEARCH: Row(adapters=(_S.ARCHIVED,)),
    _S.VALIDATED: Row(adapters=(_S.CANARY, _S.STABLE, _S.REJECTED)),
    _S.ASKED: Row(programs=(_S.CANARY, _S.STABLE, _S.REJECTED, _S.ABORTED)),
    _S.CANARY: Row(both=(_S.STABLE, _S.ROLLED_BACK, _S.INCONCLUSIVE, _S.ABORTED)),
    _S.STABLE: Row(both=(_S.SUPERSEDED, _S.ROLLED_BACK)),
    _S.SUPERSEDED: Row(both=(_S.STABLE,), adapters=(_S.ARCHIVED,), programs=(_S.ASKED,)),
    _S.ROLLED_BACK: Row(both=(_S.STABLE,), adapters=(_S.ARCHIVED,), programs=(_S.ASKED,)),
    _S.INCONCLUSIVE: Row(both=(_S.STABLE,), adapters=(_S.CANARY, _S.ARCHIVED), programs=(_S.ASKED,)),
    _S.ABORTED: Row(both=(_S.STABLE,), adapters=(_S.CANARY, _S.ARCHIVED), programs=(_S.ASKED,)),
    _S.REJECTED: Row(adapters=(_S.ARCHIVED,), programs=(_S.ASKED, _S.STABLE)),
    _S.ARCHIVED: Row(),
}
"""None: not on record yet. Stable from anywhere but canary is an operator's word, or a roll-back to what came before.

The weights of a rejected version stay what they are; a program may have been changed, so it may be asked for again.
"""


def allowed_moves(contest: Contest, state: EntryState | None) -> frozenset[EntryState]:
    row = MOVES[state]
    return frozenset(row.both + (row.adapters if contest == "adapters" else row.programs))


def label(contest: Contest, name: str | None) -> str:
    """Return the name as people are told it."""
    return str(name) if contest == "adapters" else f"program {name}"


def entry_of(agent: AgentAdapters, contest: Contest, name: str) -> Entry:
    """Raises NotAllowed for what is not on record."""
    if (entry := agent.contest(contest).entries.get(name)) is not None:
        return entry
    if contest == "adapters":
        raise NotAllowed(f"there is no version {name}; `ratchet adapters list` shows those there are")
    raise NotAllowed(f"program {name} was never tried or chosen; `ratchet programs standing` shows those that were")


def set_state(
    agent: AgentAdapters, contest: Contest, name: str, to: EntryState, decision: Decision, **changes: Any
) -> AgentAdapters:
    """Move one entry, and change whatever else of it changes with that. Raises NotAllowed as the table says."""
    stamp = {"state": to, "decision": decision.sequence, "since": decision.at, **changes}
    entry = agent.contest(contest).entries.get(name)
    if entry is None and to in allowed_moves(contest, None):
        fresh = AdapterEntry(version=name, **stamp) if contest == "adapters" else ProgramEntry(name=name, **stamp)
        return put_entry(agent, fresh)
    entry = entry_of(agent, contest, name)
    if to not in (options := allowed_moves(contest, entry.state)):
        named = ", ".join(sorted(options)) or "nothing else"
        raise NotAllowed(
            f"{label(contest, name)} is {entry.state}, so it can't become {to}; from there it may become {named}"
        )
    return put_entry(agent, entry.model_copy(update=stamp))


def put_entry(agent: AgentAdapters, entry: Entry) -> AgentAdapters:
    if isinstance(entry, AdapterEntry):
        return agent.model_copy(update={"versions": {**agent.versions, entry.version: entry}})
    return set_aliases(agent, "programs", entries={**agent.programs.entries, entry.name: entry})


def set_aliases(agent: AgentAdapters, contest: Contest, **aliases: Any) -> AgentAdapters:
    if contest == "adapters":
        return agent.model_copy(update=aliases)
    return agent.model_copy(update={"programs": agent.programs.model_copy(update=aliases)})


def add_outcome(
    agent: AgentAdapters, experiment: RunningExperiment | None, verdict: Verdict, decision: Decision
) -> AgentAdapters:
    """Add the end of the experiment, if there is one, to the outcomes of its treatment."""
    if experiment is None:
        return agent
    outcome = ExperimentOutcome(
        experiment_id=experiment.experiment_id,
        kind=experiment.kind,
        verdict=verdict,
        decision=decision.sequence,
        at=decision.at,
    )
    entry = agent.contest(experiment.contest).entries[experiment.arms[0]]
    return put_entry(agent, entry.model_copy(update={"outcomes": (*entry.outcomes, outcome)}))


def check_invariants(agent: AgentAdapters) -> AgentAdapters:
    """Raises pydantic's ValidationError for an agent that breaks an invariant."""
    return AgentAdapters(**(dict(agent) | {"programs": AgentPrograms(**dict(agent.programs))}))
