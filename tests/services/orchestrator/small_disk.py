"""A real file system of a few megabytes that can be filled to the last byte."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.disks import mounted_disk

BLOCK = 4096


class SmallDisk:
    """A disk mounted at `folder`, on which one file takes all the room that nobody may have."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / ".filler"

    @property
    def free_bytes(self) -> int:
        state = os.statvfs(self.folder)
        return state.f_bavail * state.f_frsize

    def leave(self, free_bytes: int) -> None:
        """Leave room for so many bytes, in whole blocks; less if others write at this moment."""
        self.empty()
        while (size := (self.free_bytes - free_bytes) // BLOCK * BLOCK) > 0:
            with self._filler.open("wb") as file, suppress(OSError):
                os.posix_fallocate(file.fileno(), 0, size)
                return

    def empty(self) -> None:
        """Free all the room."""
        self._filler.unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[SmallDisk]:
    """Mount a small disk. Raises MayNotMount."""
    with mounted_disk(folder, size) as mounted:
        yield SmallDisk(mounted)
