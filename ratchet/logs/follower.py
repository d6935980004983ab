"""Says of a fleet that follows another's decisions which adapters it still uses: a file in its own logs folder.

The fleet that decides reads it before it removes an adapter, and `ratchet log prune` knows by it which positions of an
experiment are of these logs (docs/scale.md).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from ratchet.files.append_file import disk_errors
from ratchet.files.atomic_file import replace_file
from ratchet.logs.names import FOLLOWER
from schemas.records.registry import AdapterEntry


class AdaptersInUse(msgspec.Struct, frozen=True):
    """Versions of one agent. `revision`: of the registry by which its tasks are assigned now."""

    revision: int
    versions: tuple[str, ...]


class FollowerNote(msgspec.Struct, frozen=True):
    """`fleet`: its number among those that pool their evidence. `agents`: by name."""

    fleet: int
    agents: dict[str, AdaptersInUse]

    def is_done_with(self, agent_id: str, archived: AdapterEntry) -> bool:
        """True if the fleet knows that the version is archived, so assigns no task to it, and uses it no more."""
        used = self.agents.get(agent_id)
        return used is None or (used.revision >= archived.decision and archived.version not in used.versions)


def write_follower_note(logs_dir: Path, note: FollowerNote) -> None:
    """Blocks; raises JournalError, DiskFull."""
    replace_file(logs_dir / FOLLOWER, msgspec.json.encode(note))


def read_follower_note(logs_dir: Path) -> FollowerNote | None:
    """Return what the fleet of these logs said last; None where it follows none, or never ran. Raises
    StorageUnavailable."""
    path = logs_dir / FOLLOWER
    with disk_errors(path):
        try:
            return msgspec.json.decode(path.read_bytes(), type=FollowerNote)
        except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
            return None


def remove_follower_note(logs_dir: Path) -> None:
    """Remove the note, once the fleet decides for itself. Raises StorageUnavailable."""
    with disk_errors(logs_dir):
        (logs_dir / FOLLOWER).unlink(missing_ok=True)
