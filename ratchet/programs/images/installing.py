"""The frame of every installation for programs: one at a time in a folder, which every run may pass."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ratchet.files.folder_lock import FolderLock
from ratchet.service.errors import RatchetError

SHOWN_CHARS = 600

Say = Callable[[str], None]


class NotInstalled(RatchetError):
    """A requirement of a program can't be had; the sentence says why."""


class AnotherInstalls(NotInstalled):
    """Somebody else installs in the folder just now."""


@contextmanager
def installing(folder: Path) -> Iterator[None]:
    """Raises NotInstalled where somebody else installs there, or runs could not get at it."""
    folder.mkdir(parents=True, exist_ok=True)
    _require_passable(folder)
    lock = FolderLock(folder)
    if not lock.try_acquire():
        raise AnotherInstalls(f"something is installed in {folder} right now ({lock.holder()}): try again then")
    try:
        yield
    finally:
        lock.release()


def _require_passable(folder: Path) -> None:
    """Each run of a runner that root starts has a user of its own."""
    if os.geteuid() != 0:
        return
    closed = next((one for one in (folder, *folder.parents) if not one.stat().st_mode & 0o001), None)
    if closed is not None:
        raise NotInstalled(
            f"{closed} may be passed by root alone, and each run has a user of its own: set "
            "RATCHET_PROGRAM_ENVIRONMENTS to a folder that every user may pass, such as /var/lib/ratchet/programs"
        )
