"""What an operator does to the adapters by hand: each move is a decision like any other, with his name and reason.

A version is checked as before any traffic, first. Nothing is printed here.
"""

from __future__ import annotations

import getpass
import re
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from pydantic import JsonValue

from schemas.decision import DecisionDraft, Freeze, Move, Promote, RollBack, Unfreeze
from schemas.registry import AgentAdapters, Registry
from schemas.work import BASE_VERSION
from services.adapters.check import AdapterLimits
from services.adapters.registry import RegistryStore
from services.adapters.registry_check import entry_faults
from services.cli.exit_codes import CommandError, UsageError
from services.errors import AdapterError
from services.settings import FleetSettings


@dataclass(frozen=True, slots=True)
class AdapterDesk:
    store: RegistryStore
    agent_id: str
    max_rank: int

    @classmethod
    def here(cls, agent_id: str | None) -> Self:
        """`agent_id` None: the fleet's first agent. Raises SettingsError, UsageError."""
        settings = FleetSettings.read()
        store = RegistryStore(settings.adapters_dir)
        (chosen, *_) = chosen_agents(settings, store.read(), agent_id)
        return cls(store, chosen, settings.adapter_max_rank)

    @property
    def agent(self) -> AgentAdapters:
        return self.store.read().agent(self.agent_id)

    def folder(self, version: str) -> Path | None:
        """None for the base model. Raises UsageError for a version that is not there."""
        entry = self.agent.versions.get(version)
        if entry is None or not entry.can_serve:
            known = ", ".join(v for v, e in self.agent.versions.items() if e.can_serve)
            raise UsageError(f"agent {self.agent_id} has no adapter {version!r}; it has {known}")
        return self.store.folder / entry.folder if entry.folder else None

    def promote(self, version: str, reason: str) -> Registry:
        """Raises UsageError, AdapterError, NotAllowed and the other errors of the registry."""
        return self._decide(Promote(version=version), reason, self._checked(version))

    def roll_back(self, version: str | None, to: str | None, reason: str) -> Registry:
        """`version` None: the primary, unless there is a candidate too. Raises as `promote`."""
        version = version or self._only_choice()
        target = None if version == self.agent.candidate else to or self.agent.previous
        evidence = self._checked(target) if target else {}
        return self._decide(RollBack(version=version, to=to), reason, evidence)

    def freeze(self, reason: str) -> Registry:
        return self._decide(Freeze(), reason, {})

    def unfreeze(self, reason: str) -> Registry:
        return self._decide(Unfreeze(), reason, {})

    def _only_choice(self) -> str:
        agent = self.agent
        if agent.candidate:
            raise UsageError(f"{agent.candidate} is the candidate and {agent.primary} the primary: name one of them")
        return agent.primary

    def _checked(self, version: str) -> dict[str, JsonValue]:
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
            who=f"operator:{operator()}",
            at=datetime.now(UTC),
            reason=reason,
            evidence=evidence,
        )
        return self.store.update(lambda registry: draft)


def chosen_agents(settings: FleetSettings, registry: Registry, agent_id: str | None) -> list[str]:
    """The one that was named, or all, the fleet's first one first. Raises UsageError for one nobody knows."""
    known = list(dict.fromkeys([*settings.agents, *registry.agents]))
    if agent_id is not None and agent_id not in known:
        raise UsageError(f"no agent {agent_id!r}; there are: {', '.join(known)}")
    return known if agent_id is None else [agent_id]


def operator() -> str:
    """The name of who is logged in."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = ""
    return re.sub(r"[\x00-\x1f\x7f]", "", name)[:100] or "unknown"


def rebuild(store: RegistryStore) -> tuple[Registry, Path | None]:
    """The registry made anew from the ledger, and where the file it replaced is kept. Raises RegistryError."""
    store.replay()  # a broken ledger is refused before anything is touched
    if not store.path.exists():
        return store.rebuild(), None
    kept = store.path.with_name(f"{store.path.name}.{datetime.now(UTC):%Y%m%dT%H%M%S}")
    try:
        shutil.copy2(store.path, kept)
    except OSError as error:
        raise CommandError(f"{store.path} can't be copied before it is replaced: {error}") from error
    return store.rebuild(), kept
