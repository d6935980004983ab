"""Which adapter versions a run may learn from: the parent, and as many promotions behind it as asked. Pure."""

from __future__ import annotations

from ratchet.service.errors import TrainingRefused
from schemas.messages.work import BASE_VERSION
from schemas.records.registry import AgentAdapters


def eligible_versions(agent: AgentAdapters, parent: str, versions_behind: int) -> dict[str, str | None]:
    """Each with the sha256 of its weights, None for the base model. Raises TrainingRefused for an unknown parent."""
    found: dict[str, str | None] = {}
    version: str | None = parent
    while version is not None and version not in found and len(found) <= versions_behind:
        entry = agent.versions.get(version)
        if entry is None:
            raise TrainingRefused(f"there is no version {version} in the registry: train from one that is there")
        found[version] = entry.sha256
        version = None if version == BASE_VERSION else entry.parent or BASE_VERSION
    return found
