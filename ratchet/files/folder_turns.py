"""Processes that write in one folder take turns: a FolderLock that is waited for, with an end to the waiting."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ratchet.files.folder_lock import FolderLock
from ratchet.service.errors import RegistryError

POLL_S = 0.002
TURN_TIMEOUT_S = 30.0


@contextmanager
def turn(folder: Path, timeout_s: float = TURN_TIMEOUT_S) -> Iterator[None]:
    """Blocks until it is this process's turn. Raises RegistryError, naming the holder, after `timeout_s` seconds."""
    lock = FolderLock(folder)
    deadline = time.monotonic() + timeout_s
    while not lock.try_acquire():
        if time.monotonic() > deadline:
            raise RegistryError(
                f"{lock.path} has been held by {lock.holder()} for {timeout_s:.0f} s, far longer than a change takes: "
                f"see what that process does, and end it if it hangs (nothing is left half-done)"
            )
        time.sleep(random.uniform(POLL_S / 2, POLL_S * 2))
    try:
        yield
    finally:
        lock.release()
