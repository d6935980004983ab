"""The adapters' service for whoever is logged in here, and the registry made anew. Nothing is printed here."""

from __future__ import annotations

import getpass
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from ratchet.adapters.adapter_service import AdapterService, chosen_agents
from ratchet.adapters.registry import RegistryStore
from ratchet.cli.terminal.errors import CommandError
from ratchet.service.settings import FleetSettings
from schemas.records.decision import DecisionDraft, SignWith
from schemas.records.registry import Registry


def adapter_service_here(agent_id: str | None) -> AdapterService:
    """`agent_id` None: the fleet's first agent. Raises SettingsError, NotFound."""
    settings = FleetSettings.read()
    store = RegistryStore.of(settings)
    (chosen, *_) = chosen_agents(settings.agents, store.read(), agent_id)
    return AdapterService(store, chosen, settings.adapter_max_rank, operator())


def operator() -> str:
    """The name of who is logged in."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = ""
    return re.sub(r"[\x00-\x1f\x7f]", "", name)[:100] or "unknown"


def sign_with(settings: FleetSettings, reason: str) -> Callable[[str], DecisionDraft]:
    """The decision that a public key signs from it on."""

    def draft(key: str) -> DecisionDraft:
        return DecisionDraft(
            agent_id=settings.agents[0],
            move=SignWith(key=key),
            who=f"operator:{operator()}",
            at=datetime.now(UTC),
            reason=reason,
        )

    return draft


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
