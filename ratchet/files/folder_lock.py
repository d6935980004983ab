"""An exclusive lock on a folder: held for long by a leader, for a moment by whoever changes something in it.

It dies with its process, kill -9 included.

It is a flock on `<folder>/.lock`, a file that is never removed: who removes it lets a second holder in (but for the
leader of the logs, who replaces it and is fenced by other means: ratchet/logs/leadership.py). It holds between
processes that see the same file system; not every network file system keeps that promise. A child forked (not spawned)
while the lock is held keeps it alive.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ratchet.service.errors import RegistryError

POLL_S = 0.002
LOCK_TIMEOUT_S = 30.0


class FolderLock:
    """Taken by at most one process, and within it by at most one FolderLock, at a time."""

    def __init__(self, folder: Path, name: str = ".lock") -> None:
        self.path = folder / name
        self._fd: int | None = None

    def try_acquire(self, *, sign: bool = True) -> bool:
        """Never waits. True if the lock is held now, also when it already was. `sign`: write down by whom."""
        if self._fd is not None:
            return True
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        if not self._lock(fd) or not self._is_in_place(fd):
            os.close(fd)
            return False
        self._fd = fd
        if sign:
            with suppress(OSError):  # a full disk: who holds it is only for people
                self._sign(fd)
        return True

    def acquire(self, timeout_s: float) -> bool:
        """Blocks for at most `timeout_s` seconds. False if another held it all the while."""
        deadline = time.monotonic() + timeout_s
        while not self.try_acquire():
            if time.monotonic() > deadline:
                return False
            time.sleep(random.uniform(POLL_S / 2, POLL_S * 2))
        return True

    def release(self) -> None:
        """Gives the lock up; harmless if it is not held."""
        if self._fd is not None:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            os.close(self._fd)
            self._fd = None

    def holder(self) -> str:
        """Return the process that holds it, or held it last, as `pid 123 on host`; for a message to a person."""
        try:
            return self.path.read_text("utf-8", "replace").partition("\n")[0].strip() or "nobody"
        except FileNotFoundError:
            return "nobody"

    @staticmethod
    def _lock(fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _is_in_place(self, fd: int) -> bool:
        """False where another file took the place of this one (ratchet/logs/leadership.py) before it was locked."""
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(fd), self.path.stat())
        return False

    @staticmethod
    def _sign(fd: int) -> None:
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)


@contextmanager
def lock_folder(folder: Path, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[None]:
    """Holds the folder's lock. Blocks; raises RegistryError, naming the other holder, after `timeout_s` seconds."""
    lock = FolderLock(folder)
    if not lock.acquire(timeout_s):
        raise RegistryError(
            f"{lock.path} has been held by {lock.holder()} for {timeout_s:.0f} s, far longer than a change takes: "
            f"see what that process does, and end it if it hangs (nothing is left half-done)"
        )
    try:
        yield
    finally:
        lock.release()
