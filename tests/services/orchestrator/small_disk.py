"""A real file system of a few megabytes that can be filled to the last byte. Needs root, or sudo without a password."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

BLOCK = 4096


class SmallDisk:
    """Mounted at `folder`. One file takes all the room that is not to be had."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / ".filler"

    @property
    def free_bytes(self) -> int:
        state = os.statvfs(self.folder)
        return state.f_bavail * state.f_frsize

    def leave(self, free_bytes: int) -> None:
        """From now on there is room for so many bytes, in whole blocks."""
        self.empty()
        if (size := (self.free_bytes - free_bytes) // BLOCK * BLOCK) > 0:
            with self._filler.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)

    def empty(self) -> None:
        """All the room is to be had again."""
        self._filler.unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[SmallDisk]:
    """Raises CalledProcessError where this user may not mount."""
    folder.mkdir(parents=True)
    may = [] if os.geteuid() == 0 else ["sudo", "-n"]
    subprocess.run(
        [*may, "mount", "-t", "tmpfs", "-o", f"size={size},uid={os.geteuid()}", "tmpfs", str(folder)],
        check=True,
        capture_output=True,
    )
    try:
        yield SmallDisk(folder)
    finally:
        with suppress(subprocess.CalledProcessError):
            subprocess.run([*may, "umount", "-l", str(folder)], check=True)
