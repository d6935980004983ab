"""The last lines of a log, read from the end of its active file: quick however long the log is.

Sealed segments are not looked into, so right after a rotation there is little to see.
"""

from __future__ import annotations

import os
from pathlib import Path

from ratchet.logs.names import active_path

MOST_BYTES = 4 * 1024 * 1024


def active_tail(folder: Path, name: str, count: int, most_bytes: int = MOST_BYTES) -> list[bytes]:
    """At most `count` whole lines without their newlines, the oldest first, from the file's last `most_bytes`."""
    try:
        with active_path(folder, name).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            begin = file.seek(max(0, size - most_bytes))
            lines = file.read(size - begin).split(b"\n")
    except FileNotFoundError:
        return []
    whole = lines[1 if begin else 0 : -1]
    return whole[-count:]
