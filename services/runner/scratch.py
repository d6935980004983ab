"""The folder of a runner's sockets: owned by a live process, by a lock, and swept by the next one where it is not.

It lies below the system's temporary folder, where every user may pass, since a sandbox has a user id of its own.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from ratchet.files.append_file import explain
from ratchet.files.folder_lock import FolderLock

PREFIX = "ratchet-runner-"
PASSABLE = 0o711
HALF_MADE_S = 60.0
"""One that is this old and has no name yet was left by a process that was killed while it made it."""


class Scratch:
    """`folder` is there until `close`, or until the process is gone and another sweeps."""

    def __init__(self, below: Path | None = None) -> None:
        """Raises JournalError, StorageUnavailable where it can't be made."""
        root = below or Path(tempfile.gettempdir())
        making = root / f".{PREFIX}{secrets.token_hex(8)}"
        self.folder = root / making.name.removeprefix(".")
        try:
            making.mkdir(mode=0o700)
            self._lock = FolderLock(making)
            self._lock.try_acquire()
            making.chmod(PASSABLE)
            making.rename(self.folder)  # only now others see it, and see it locked
        except OSError as error:
            raise explain(error, making) from error

    def socket(self) -> Path:
        """A place for one; nothing is made."""
        return self.folder / secrets.token_hex(8)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.release()


def sweep(below: Path | None = None) -> list[str]:
    """Remove the folders of this user whose process is gone. Returns their names."""
    removed = []
    root = below or Path(tempfile.gettempdir())
    for folder in (*root.glob(f"{PREFIX}*"), *root.glob(f".{PREFIX}*")):
        with suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            if folder.name.startswith(".") and folder.stat().st_mtime > time.time() - HALF_MADE_S:
                continue
            lock = FolderLock(folder)
            if not lock.try_acquire(sign=False):
                continue
            shutil.rmtree(folder, ignore_errors=True)
            lock.release()
            removed.append(folder.name)
    return removed
