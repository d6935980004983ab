"""Decides which adapter versions are kept, and removes one: archived first, its folder removed once it has drained.

Policy is a value: `to_archive` names the versions, the caller decides each of them and says when one has drained. The
record of a version stays in the registry, and its number is never given to other weights.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from ratchet.adapters.contest import allowed_moves
from ratchet.adapters.manifest import version_key
from ratchet.adapters.publish import remove_tree
from ratchet.adapters.registry import RegistryStore
from schemas.records.decision import DecisionDraft, RemoveFolder
from schemas.records.registry import BEFORE_TRAFFIC, AgentAdapters, EntryState, Registry


def to_archive(agent: AgentAdapters, keep: int) -> list[str]:
    """Versions out of use that are older than the newest `keep` with a folder, but for those that are still to be
    tried, which may wait for long; oldest first. Each research agent has the newest `keep` of its own.
    """
    with_folder: dict[str | None, list[str]] = {}
    for version in sorted(agent.versions, key=version_key):
        entry = agent.versions[version]
        if entry.folder and entry.state not in BEFORE_TRAFFIC:
            with_folder.setdefault(entry.research_agent, []).append(version)
    old = [version for versions in with_folder.values() for version in versions[: max(0, len(versions) - keep)]]
    unused = [version for version in old if version not in agent.in_traffic]
    return [one for one in unused if EntryState.ARCHIVED in allowed_moves("adapters", agent.versions[one].state)]


def remove_version_folder(store: RegistryStore, agent_id: str, version: str, *, who: str, at: datetime) -> Registry:
    """Remove an archived version's folder: nothing may be answering with it any more, the caller says.

    Decided first, removed after; a crash in between leaves the folder to `remove_leftovers`. Raises RegistryError.
    """
    draft = DecisionDraft(
        agent_id=agent_id,
        move=RemoveFolder(version=version),
        who=who,
        at=at,
        reason="archived, and no replica holds it any more",
    )
    registry = store.update(lambda registry: draft)
    remove_tree(store.folder / agent_id / version)
    return registry


def remove_leftovers(store: RegistryStore) -> list[Path]:
    """Folders whose removal was decided but not finished; they are gone when this returns."""
    leftovers = [
        store.folder / agent_id / version
        for agent_id, agent in store.read().agents.items()
        for version, entry in agent.versions.items()
        if entry.state is EntryState.ARCHIVED
        and entry.folder is None
        and os.path.lexists(store.folder / agent_id / version)
    ]
    for folder in leftovers:
        remove_tree(folder)
    return leftovers
