"""Moves adapters by hand, for operators: each move is a decision like any other, with the operator's name and a reason.

A version is checked as before any traffic, first. Blocks on the disk: an adapter is read whole before it is promoted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import JsonValue

from ratchet.adapters.limits import AdapterLimits
from ratchet.adapters.registry import RegistryStore
from ratchet.adapters.verification import entry_faults
from ratchet.service.errors import AdapterError, Ambiguous, NotFound
from schemas.messages.work import BASE_VERSION
from schemas.records.decision import DecisionDraft, Freeze, Move, Promote, RollBack, Trust, Unfreeze
from schemas.records.registry import AgentAdapters, Registry


@dataclass(frozen=True, slots=True)
class AdapterService:
    """One agent's. `operator` is the name that its decisions are recorded under."""

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

    def promote(self, version: str, reason: str) -> Registry:
        """Raises NotFound, AdapterError, NotAllowed and the other errors of the registry."""
        evidence = self._check_version(version)
        return self._decide(Promote(version=version), reason, evidence)

    def roll_back(self, version: str | None, to: str | None, reason: str) -> Registry:
        """`version` None: the primary, unless there is a candidate too (Ambiguous). Raises as `promote`."""
        version = version or self._only_choice()
        if version not in self.agent.versions:
            raise NotFound(f"agent {self.agent_id} has no version {version!r}: ratchet adapters list")
        target = None if version == self.agent.candidate else to or self.agent.previous
        evidence = self._check_version(target) if target else {}
        return self._decide(RollBack(version=version, to=to), reason, evidence)

    def freeze(self, reason: str) -> Registry:
        return self._decide(Freeze(), reason, {})

    def unfreeze(self, reason: str) -> Registry:
        return self._decide(Unfreeze(), reason, {})

    def anchor_anew(self, reason: str) -> Registry:
        """The scorer's scores are the new measure."""
        return self._decide(Trust(anchor_anew=True), reason, {})

    def _only_choice(self) -> str:
        agent = self.agent
        if agent.candidate:
            raise Ambiguous(f"{agent.candidate} is the candidate and {agent.primary} the primary: name one of them")
        return agent.primary

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

    def _decide(self, move: Move, reason: str, evidence: dict[str, JsonValue]) -> Registry:
        draft = DecisionDraft(
            agent_id=self.agent_id,
            move=move,
            who=f"operator:{self.operator}",
            at=datetime.now(UTC),
            reason=reason,
            evidence=evidence,
        )
        return self.store.update(lambda registry: draft)


def chosen_agents(fleet: Iterable[str], registry: Registry, agent_id: str | None) -> list[str]:
    """The one that was named, or all, the fleet's first one first. Raises NotFound for one nobody knows."""
    known = list(dict.fromkeys([*fleet, *registry.agents]))
    if agent_id is not None and agent_id not in known:
        raise NotFound(f"no agent {agent_id!r}; there are: {', '.join(known)}")
    return known if agent_id is None else [agent_id]
