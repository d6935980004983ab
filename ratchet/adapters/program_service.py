"""Moves an agent's programs by hand, for operators, and shows their state. Blocks on the disk.

The orchestrator hears which programs runners have, and looks once more before any is tried.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ratchet.adapters.registry import RegistryStore
from ratchet.service.errors import Ambiguous, NotFound
from schemas.api.programs import ProgramsStanding, ProgramView
from schemas.records.decision import DecisionDraft, Move, PromoteProgram, RollBackProgram, TryProgram
from schemas.records.registry import AgentPrograms, ProgramEntry, Registry


@dataclass(frozen=True, slots=True)
class ProgramService:
    """One agent's. `operator` is the name that its decisions are recorded under."""

    store: RegistryStore
    agent_id: str
    operator: str

    def try_(self, program: str, reason: str) -> Registry:
        """Ask for its experiment against the one that answers by default. Raises NotAllowed and the other errors of the
        registry, as all of these do."""
        return self._decide(TryProgram(program=program), reason)

    def promote(self, program: str, reason: str) -> Registry:
        """Have it answer by default at once."""
        return self._decide(PromoteProgram(program=program), reason)

    def roll_back(self, program: str | None, reason: str) -> Registry:
        """`program` None: the one that answers by default, unless one is tried too (Ambiguous, NotFound)."""
        programs = self.store.read().agent(self.agent_id).programs
        return self._decide(RollBackProgram(program=program or _only_choice(programs)), reason)

    def _decide(self, move: Move, reason: str) -> Registry:
        draft = DecisionDraft(
            agent_id=self.agent_id, move=move, who=f"operator:{self.operator}", at=datetime.now(UTC), reason=reason
        )
        return self.store.update(lambda registry: draft)


def require_known(program: str, known: Collection[str]) -> None:
    """Raises NotFound for a program that is none of those that runners have; empty: nothing is known of any."""
    if known and program not in known:
        raise NotFound(f"no runner has a program {program!r} for this agent; they have {', '.join(sorted(known))}")


def _only_choice(programs: AgentPrograms) -> str:
    tried = programs.candidate or programs.asked
    if tried is not None:
        raise Ambiguous(f"{tried} is tried and {programs.primary} answers by default: name one of them")
    if programs.primary is None:
        raise NotFound("no program answers by default: there is nothing to roll back")
    return programs.primary


def programs_standing(registry: Registry, agent_id: str, told: Sequence[Mapping[str, str]] = ()) -> ProgramsStanding:
    """`told`: what each runner says of the agent's programs, name → revision."""
    agent = registry.agent(agent_id)
    programs = agent.programs
    return ProgramsStanding(
        agent_id=agent_id,
        revision=registry.revision,
        primary=programs.primary,
        candidate=programs.candidate,
        asked=programs.asked,
        previous=programs.previous,
        cool_down_until=agent.cool_down_until,
        experiment=next((one for one in agent.running if one.programs is not None), None),
        items=[_view(programs, entry, told) for entry in programs.entries.values()],
        runs={name: _runs(name, told) for name in sorted({known for one in told for known in one})},
    )


def _view(programs: AgentPrograms, entry: ProgramEntry, told: Sequence[Mapping[str, str]]) -> ProgramView:
    aliases = {"primary": programs.primary, "candidate": programs.candidate, "previous": programs.previous}
    runs = _runs(entry.name, told)
    return ProgramView(
        **dict(entry),
        sentence=entry.state.sentence,
        aliases=[alias for alias, held in aliases.items() if held == entry.name],
        changed=None if runs is None or entry.revision is None else runs != entry.revision,
    )


def _runs(name: str, told: Sequence[Mapping[str, str]]) -> str | None:
    """The revision that all runners have; None where they differ, or none tells."""
    found = {one.get(name) for one in told}
    return found.pop() if len(found) == 1 else None
