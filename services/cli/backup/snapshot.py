"""Opens every file of a backup at one moment of a running fleet. Copies nothing.

Under the registry's lock and the logs' lock of names nothing is sealed, removed or decided, so the moment is short and
whole. Logs only grow: what a file holds up to its size of that moment stays as it is, whatever is renamed or removed
afterwards. The folder of keys and the adapters are opened before the logs, so that no decision rests on a line that the
backup lacks. Left out: the indexes, which are made anew from the logs, and locks.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ratchet.files.folder_lock import FolderLock
from ratchet.logs.leadership import CHANGES
from services.cli.terminal import CommandError

KEYS, ADAPTERS, LOGS = "decision-keys", "adapters", "logs"
"""The folders of a backup, in the order in which they are opened."""
LEFT_OUT = (".sqlite", ".sqlite-wal", ".sqlite-shm", ".tmp", ".lock", ".changes", ".sock")
BOTH_LOCKS_WITHIN_S = 60.0
READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file as it was at the moment of the snapshot: its first `size` bytes."""

    name: str
    fd: int
    size: int
    mode: int
    changed: float

    def blocks(self) -> Iterator[bytes]:
        """Yields its bytes. Raises CommandError where the file has become shorter."""
        offset = 0
        while offset < self.size:
            block = os.pread(self.fd, min(READ_BYTES, self.size - offset), offset)
            if not block:
                raise CommandError(f"{self.name} was cut while it was copied: make the backup again")
            offset += len(block)
            yield block


@contextmanager
def snapshot(folders: Mapping[str, Path]) -> Iterator[list[OpenFile]]:
    """Yields the files of these folders, named as in `logs/labels.jsonl`. Raises CommandError."""
    _allow_many_files()
    with ExitStack() as opened:
        with _nothing_changes(folders[ADAPTERS], folders[LOGS]):
            files = [
                file
                for name in (KEYS, ADAPTERS, LOGS)
                if name in folders
                for file in _open(name, folders[name], opened)
            ]
        yield files


def _open(name: str, folder: Path, opened: ExitStack) -> Iterator[OpenFile]:
    for root, inner, files in os.walk(folder):
        inner.sort()
        for file in sorted(files):
            path = Path(root, file)
            if file.endswith(LEFT_OUT) or not path.is_file() or path.is_symlink():
                continue
            try:
                fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            except FileNotFoundError:  # a training removes an old checkpoint of its own
                continue
            opened.callback(os.close, fd)
            status = os.fstat(fd)
            size = _end_of_whole_lines(fd, status.st_size) if file.endswith(".jsonl") else status.st_size
            yield OpenFile(f"{name}/{path.relative_to(folder)}", fd, size, status.st_mode & 0o777, status.st_mtime)


def _end_of_whole_lines(fd: int, size: int) -> int:
    """Return where the last whole line ends: a line that is being written is none of the backup's."""
    end = size
    while end > 0:
        start = max(0, end - READ_BYTES)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


@contextmanager
def _nothing_changes(adapters: Path, logs: Path) -> Iterator[None]:
    """Holds both locks, and never waits for the second with the first in hand: another may hold the second."""
    locks = FolderLock(adapters), FolderLock(logs, CHANGES)
    deadline = time.monotonic() + BOTH_LOCKS_WITHIN_S
    try:
        while not all(lock.try_acquire() for lock in locks):
            for lock in locks:
                lock.release()
            if time.monotonic() > deadline:
                holders = " and ".join(f"{lock.path} ({lock.holder()})" for lock in locks)
                raise CommandError(f"no backup was made: somebody held {holders} for {BOTH_LOCKS_WITHIN_S:.0f} s")
            time.sleep(0.02)
        yield
    finally:
        for lock in locks:
            lock.release()


def _allow_many_files() -> None:
    """All files are open at once: as many as the hard limit allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
