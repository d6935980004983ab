"""Replace a small file so that a reader sees the old content or the new, never half of either, and a crash too."""

from __future__ import annotations

import os
from pathlib import Path

from ratchet.files.append_file import explain
from ratchet.service import failpoint


def replace_file(path: Path, content: bytes) -> None:
    """Blocks until it is on disk. One writer at a time: the temporary name is always the same, so none piles up; what
    a stopped writer left under it may still be open there, and is not written to.

    Raises DiskFull and JournalError; the old content is then still there.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        failpoint.reach("registry-written")
        temporary.rename(path)
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
