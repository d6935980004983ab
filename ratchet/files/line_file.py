"""A file of lines that nobody removes anything from: each whole and on disk, behind whatever a crash tore. Blocks."""

from __future__ import annotations

from pathlib import Path

from ratchet.files.append_file import AppendFile, explain
from ratchet.files.atomic_file import sync_folder


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
