"""Messages on disk that the broker can't take: one file each, named by its sha256, fsynced, bounded together. Blocks.

A file of its own name is claimed by a dead letter that refers to it. One that ends in `.waiting` is a dead letter for
which its queue had no room; whoever holds the folder's lock publishes it when there is room, and removes it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ratchet.files.append_file import explain
from ratchet.files.atomic_file import replace_file
from ratchet.files.folder_lock import FolderLock
from ratchet.service.errors import DiskFull, JournalError

FOLDER = "dead-letters"
"""A folder in the logs folder."""
MOST_BYTES = 1024**3
"""The bound of all files together. Beyond it, or on a folder that can't be written, dead letters wait on the ladder."""
WAITING = ".waiting"
_CLAIM = re.compile(r"[0-9a-f]{64}")


class ClaimStore:
    """Several processes may write to one folder. Raises JournalError, DiskFull throughout."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self.folder = folder
        self._most_bytes = most_bytes

    def put(self, data: bytes, *, waiting: bool = False) -> str:
        """Its sha256, once it is on disk. Raises DiskFull also where the folder has reached its bound."""
        claim = hashlib.sha256(data).hexdigest()
        path = self.folder / (claim + WAITING * waiting)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            held = sum(_size(file) for file in os.scandir(self.folder))
            if held + len(data) > self._most_bytes:
                raise DiskFull(f"{self.folder} holds {held:,} of at most {self._most_bytes:,} bytes: send them back")
        except OSError as error:
            raise explain(error, path) from error
        replace_file(path, data)
        return claim

    def get(self, claim: str) -> bytes | None:
        """None if there is no such file (any more), or it is damaged."""
        data = self._read(claim) if _CLAIM.fullmatch(claim) else None
        return data if data is not None and hashlib.sha256(data).hexdigest() == claim else None

    def remove(self, name: str) -> None:
        """A claim, or a name as `waiting` gives it; harmless where it is gone."""
        try:
            (self.folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise explain(error, self.folder / name) from error

    def waiting(self) -> list[str]:
        """File names of the dead letters that wait for room, the oldest first."""
        try:
            waiting = (entry for entry in os.scandir(self.folder) if entry.name.endswith(WAITING))
            found = [(_written_at(entry), entry.name) for entry in waiting]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise explain(error, self.folder) from error
        return [name for _, name in sorted(found)]

    def read_waiting(self, name: str) -> bytes | None:
        """None if another process was faster, or it is damaged."""
        data = self._read(name)
        return data if data is not None and name == hashlib.sha256(data).hexdigest() + WAITING else None

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """True for one process at a time: who publishes what waits."""
        lock = FolderLock(self.folder)
        try:
            taken = lock.try_acquire()
        except OSError as error:
            raise explain(error, lock.path) from error
        try:
            yield taken
        finally:
            lock.release()

    def _read(self, name: str) -> bytes | None:
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise explain(error, self.folder / name) from error


def _written_at(file: os.DirEntry[str]) -> int:
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _size(file: os.DirEntry[str]) -> int:
    """0 for one that another writer renamed or removed meanwhile."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def waiting_on_disk(logs_dir: Path) -> int:
    """Return how many dead letters wait there for room in their queue; 0 where the folder can't be read."""
    try:
        return len(ClaimStore(logs_dir / FOLDER).waiting())
    except JournalError:
        return 0
