"""Moves an agent's adapters and programs by hand, for operators: each move is a decision like any other, with the
operator's name and a reason.

A version is checked as before any traffic, first. Whether runners have a program is for the caller to say
(`require_known`). Blocks on the disk: an adapter is read whole before it is promoted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import JsonValue

from ratchet.adapters.limits import AdapterLimits
from ratchet.adapters.registry import RegistryStore
from ratchet.adapters.verification import entry_faults
from ratchet.service.errors import AdapterError, Ambiguous, NotFound
from schemas.messages.work import BASE_VERSION
from schemas.records.decision import Contest, DecisionDraft, Move, Promote, PromoteProgram, RollBack, RollBackProgram
from schemas.records.registry import AgentAdapters, Registry


@dataclass(frozen=True, slots=True)
class OperatorService:
    """Decides for one agent. `operator` is the name that its decisions are recorded under."""

    store: RegistryStore
    agent_id: str
    max_rank: int
    operator: str

    @property
    def agent(self) -> AgentAdapters:
        return self.store.read().agent(self.agent_id)

    def folder(self, version: str) -> Path | None:
        """None for the base model. Raises NotFound for a version that is not there."""
        entry = self.agent.versions.get(version)
        if entry is None or not entry.can_serve:
            known = ", ".join(v for v, e in self.agent.versions.items() if e.can_serve)
            raise NotFound(f"agent {self.agent_id} has no adapter {version!r}; it has {known}")
        return self.store.folder / entry.folder if entry.folder else None

    def promote(self, contest: Contest, name: str, reason: str) -> Registry:
        """Raises NotFound, AdapterError, NotAllowed and the other errors of the registry."""
        if contest == "programs":
            return self.decide(PromoteProgram(program=name), reason)
        evidence = self._check_version(name)
        return self.decide(Promote(version=name), reason, evidence)

    def roll_back(self, contest: Contest, name: str | None, reason: str, to: str | None = None) -> Registry:
        """`name` None: the primary, unless another one is tried (Ambiguous). Raises as `promote`."""
        name = name or self._only_choice(contest)
        if contest == "programs":
            return self.decide(RollBackProgram(program=name), reason)
        if name not in self.agent.versions:
            raise NotFound(f"agent {self.agent_id} has no version {name!r}: ratchet adapters list")
        target = None if name == self.agent.candidate else to or self.agent.previous
        evidence = self._check_version(target) if target else {}
        return self.decide(RollBack(version=name, to=to), reason, evidence)

    def decide(self, move: Move, reason: str, evidence: dict[str, JsonValue] | None = None) -> Registry:
        """Raises NotAllowed and the other errors of the registry."""
        draft = DecisionDraft(
            agent_id=self.agent_id,
            move=move,
            who=f"operator:{self.operator}",
            at=datetime.now(UTC),
            reason=reason,
            evidence=evidence or {},
        )
        return self.store.update(lambda registry: draft)

    def _only_choice(self, contest: Contest) -> str:
        found = self.agent.contest(contest)
        if tried := found.candidate or found.asked:
            raise Ambiguous(f"{tried} is tried and {found.primary} answers by default: name one of them")
        if found.primary is None:
            raise NotFound("no program answers by default: there is nothing to roll back")
        return found.primary

    def _check_version(self, version: str) -> dict[str, JsonValue]:
        """The evidence that the version is fit for traffic. Raises AdapterError if it is not."""
        folder = self.folder(version)
        if version == BASE_VERSION or folder is None:
            return {"checked": version, "base_model": True}
        agent = self.agent
        limits = AdapterLimits(self.max_rank, agent.versions[agent.primary].base)
        if faults := entry_faults(folder, agent.versions[version], limits):
            raise AdapterError(f"{version} is not fit for traffic, so nothing was changed: {'; '.join(faults)}")
        return {"checked": version, "sha256": agent.versions[version].sha256}


def chosen_agents(fleet: Iterable[str], registry: Registry, agent_id: str | None) -> list[str]:
    """The one that was named, or all, the fleet's first one first. Raises NotFound for one nobody knows."""
    known = list(dict.fromkeys([*fleet, *registry.agents]))
    if agent_id is not None and agent_id not in known:
        raise NotFound(f"no agent {agent_id!r}; there are: {', '.join(known)}")
    return known if agent_id is None else [agent_id]


def require_known(program: str, known: Collection[str]) -> None:
    """Raises NotFound for a program that is none of those that runners have; empty: nothing is known of any."""
    if known and program not in known:
        raise NotFound(f"no runner has a program {program!r} for this agent; they have {', '.join(sorted(known))}")
