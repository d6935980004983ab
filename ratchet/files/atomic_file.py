"""Replace a small file so that a reader sees the old content or the new, never half of either, and a crash too."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

from ratchet.files.append_file import explain
from ratchet.service import failpoint


def replace_file(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Blocks until it is on disk. Several writers may be at it: the last one's content stays.

    `mode`: what the file may be used for from its first byte on, less the umask. Raises DiskFull and JournalError; the
    old content is then still there.
    """
    temporary = path.with_name(f"{path.name}.{uuid4().hex}.tmp")
    try:
        try:
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            failpoint.reach("registry-written")
            temporary.rename(path)
        finally:
            temporary.unlink(missing_ok=True)
        failpoint.reach("registry-renamed")
        sync_folder(path.parent)
    except OSError as error:
        raise explain(error, path) from error


def sync_folder(folder: Path) -> None:
    """Makes renames and removals in the folder survive a power cut."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
