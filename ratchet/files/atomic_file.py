"""Replace a small file, add a line to one, or replace a database: readers and crashes see the old or the new.

A file of lines, of which nobody removes anything, has each line whole, behind whatever a crash tore. Blocks.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from ratchet.files.append_file import AppendFile, explain
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


def append_line(path: Path, line: bytes, most_bytes: int) -> bool:
    """Returns once the line, which ends with a newline, is on disk; False where the file would grow beyond its bound.

    Several processes may append to one file. Raises DiskFull, JournalError, StorageUnavailable.
    """
    try:
        file = AppendFile(path)
        try:
            size = file.size
            if size + len(line) > most_bytes:
                return False
            torn = size > 0 and file.read(size - 1, 1) != b"\n"
            file.append(b"\n" + line if torn else line)
            file.sync()
        finally:
            file.close()
        if size == 0:
            sync_folder(path.parent)
    except OSError as error:
        raise explain(error, path) from error
    return True


SUFFIXES = ("", "-wal", "-shm")


def unlink_database(path: Path) -> None:
    """Harmless where there is none."""
    for suffix in SUFFIXES:
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def replace_database(path: Path, to: Path) -> None:
    """Put a closed database in the place of another, of which nothing is kept. Raises FileNotFoundError."""
    for suffix in SUFFIXES[1:]:  # before: else what is new would be taken for what that log goes on from
        Path(f"{to}{suffix}").unlink(missing_ok=True)
    path.rename(to)
    for suffix in SUFFIXES[1:]:
        with suppress(FileNotFoundError):
            Path(f"{path}{suffix}").rename(f"{to}{suffix}")
