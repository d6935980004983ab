"""The states a program of an agent may go through, and what the end of an experiment leaves of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from ratchet.service.errors import NotAllowed
from schemas.records.decision import Decision, RunningExperiment
from schemas.records.program_state import ProgramState
from schemas.records.registry import AdapterEntry, AgentPrograms, ExperimentOutcome, ProgramEntry

Verdict = Literal["promoted", "settled", "rolled_back", "inconclusive", "aborted", "unharmed", "replaced"]

Entry = TypeVar("Entry", AdapterEntry, ProgramEntry)

_S = ProgramState
_OUT = frozenset({_S.ASKED, _S.STABLE})
"""States out of traffic. From them an operator may have a program tried, or have it answer by default.

It also answers again where the one that came after it is rolled back, whatever became of it since.
"""

ALLOWED_MOVES: Mapping[ProgramState, frozenset[ProgramState]] = {
    _S.ASKED: frozenset({_S.CANARY, _S.REJECTED, _S.ABORTED, _S.STABLE}),
    _S.REJECTED: _OUT,
    _S.CANARY: frozenset({_S.STABLE, _S.ROLLED_BACK, _S.INCONCLUSIVE, _S.ABORTED}),
    _S.STABLE: frozenset({_S.SUPERSEDED, _S.ROLLED_BACK}),
    _S.SUPERSEDED: _OUT,
    _S.ROLLED_BACK: _OUT,
    _S.INCONCLUSIVE: _OUT,
    _S.ABORTED: _OUT,
}


def replace_programs(programs: AgentPrograms, **changes: Any) -> AgentPrograms:
    """A copy whose invariants are checked again. Raises pydantic's ValidationError if the change breaks one."""
    return AgentPrograms(**(dict(programs) | changes))


def entry_of(programs: AgentPrograms, name: str) -> ProgramEntry:
    """Raises NotAllowed for a program that nobody tried or chose."""
    if (entry := programs.entries.get(name)) is None:
        raise NotAllowed(f"program {name} was never tried or chosen; `ratchet programs standing` shows those that were")
    return entry


def move_entries(
    programs: AgentPrograms, states: Mapping[str, ProgramState], decision: Decision, **fields: Any
) -> dict[str, ProgramEntry]:
    """All entries, some in new states. `fields`: what else changes of each. Raises NotAllowed as the table says."""
    return {
        **programs.entries,
        **{name: _move_entry(programs, name, to, decision, fields) for name, to in states.items()},
    }


def _move_entry(
    programs: AgentPrograms, name: str, to: ProgramState, decision: Decision, fields: Mapping[str, Any]
) -> ProgramEntry:
    entry = programs.entries.get(name)
    if entry is None and to in _OUT:
        return ProgramEntry(name=name, state=to, decision=decision.sequence, since=decision.at, **fields)
    entry = entry_of(programs, name)
    if to not in ALLOWED_MOVES[entry.state]:
        options = ", ".join(sorted(ALLOWED_MOVES[entry.state]))
        raise NotAllowed(
            f"program {name} is {entry.state}, so it can't become {to}; from there it may become {options}"
        )
    return entry.model_copy(update={"state": to, "decision": decision.sequence, "since": decision.at, **fields})


def with_outcome(
    entries: Mapping[str, ProgramEntry], experiment: RunningExperiment | None, verdict: Verdict, decision: Decision
) -> dict[str, ProgramEntry]:
    """All entries, of which the treatment of an experiment of programs got its outcome."""
    if experiment is None or experiment.programs is None:
        return dict(entries)
    treated = entries[experiment.programs.treatment.name]
    return {**entries, treated.name: with_one_more(treated, experiment, verdict, decision)}


def with_one_more(entry: Entry, experiment: RunningExperiment, verdict: Verdict, decision: Decision) -> Entry:
    """The entry of a program, or a version, with the outcome of this experiment behind its earlier ones."""
    outcome = ExperimentOutcome(
        experiment_id=experiment.experiment_id,
        kind=experiment.kind,
        verdict=verdict,
        decision=decision.sequence,
        at=decision.at,
    )
    return entry.model_copy(update={"outcomes": (*entry.outcomes, outcome)})


def without_experiment(
    programs: AgentPrograms,
    experiment: RunningExperiment | None,
    decision: Decision,
    verdict: Verdict = "aborted",
) -> AgentPrograms:
    """After the ground of an experiment of programs is gone: the candidate of a canary is out."""
    if experiment is None or experiment.programs is None:
        return programs
    states = {programs.candidate: ProgramState.ABORTED} if programs.candidate else {}
    entries = with_outcome(move_entries(programs, states, decision), experiment, verdict, decision)
    return replace_programs(programs, entries=entries, candidate=None)
