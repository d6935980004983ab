"""`forgotten-NNNNNN.ids`: sums of the ids of tasks that were removed from the logs, so that none of them is new again.

Eight bytes a task, the oldest file first; the oldest files are dropped in the end, so that these too have a bound: the
ids of at least the newest 29 million removed tasks are known. That a new task's id has the sum of a removed one is as
likely as their number over 2^64.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

from ratchet.files.append_file import AppendFile, explain
from ratchet.service.errors import JournalError

PER_FILE = 1 << 22
FILES = 8
BYTES = 8
PATTERN = re.compile(r"forgotten-(\d{6})\.ids")


def sum_of(task_id: str) -> int:
    """64 bits, signed, of a cryptographic sum."""
    return int.from_bytes(blake2b(task_id.encode(), digest_size=BYTES).digest(), "little", signed=True)


def append(folder: Path, count: int, sums: Sequence[int], *, per_file: int = PER_FILE) -> int:
    """The new count, once the sums are on disk behind the first `count`. What a crash left behind those is cut off.

    Raises DiskFull, JournalError.
    """
    done = 0
    while done < len(sums):
        number, before = divmod(count + done, per_file)
        part = sums[done : done + per_file - before]
        _write(path_of(folder, number), before * BYTES, struct.pack(f"<{len(part)}q", *part))
        done += len(part)
    return count + done


def read(folder: Path, start: int, limit: int, *, per_file: int = PER_FILE) -> list[int]:
    """At most `limit` sums from the `start`-th on, of one file; fewer at its end. Raises JournalError for none."""
    number, before = divmod(start, per_file)
    path = path_of(folder, number)
    try:
        with path.open("rb") as file:
            file.seek(before * BYTES)
            data = file.read(min(limit, per_file - before) * BYTES)
    except OSError as error:
        raise _unusable_error(path, str(error)) from None
    if (whole := len(data) // BYTES) == 0:
        raise _unusable_error(path, "it is too short")
    return list(struct.unpack(f"<{whole}q", data[: whole * BYTES]))


def oldest(count: int, *, per_file: int = PER_FILE) -> int:
    """The first of `count` sums that is kept, always the first of a file."""
    return max(0, -(-count // per_file) - FILES) * per_file


def drop_old(folder: Path, count: int, *, per_file: int = PER_FILE) -> None:
    """Remove the files before the oldest that is kept. Raises OSError."""
    for path in folder.glob("forgotten-*.ids"):
        match = PATTERN.fullmatch(path.name)
        if match and int(match[1]) < oldest(count, per_file=per_file) // per_file:
            path.unlink()


def path_of(folder: Path, number: int) -> Path:
    return folder / f"forgotten-{number:06d}.ids"


def _write(path: Path, offset: int, data: bytes) -> None:
    try:
        file = AppendFile(path)
        try:
            if file.size < offset:
                raise _unusable_error(path, f"it is {file.size} bytes long, not {offset}")
            file.cut(offset)
            file.append(data)
            file.sync()
        finally:
            file.close()
    except OSError as error:
        raise explain(error, path) from error


def _unusable_error(path: Path, reason: str) -> JournalError:
    return JournalError(
        f"{path} can't be used ({reason}): restore it from a copy of the logs folder; without one, set `ids` in "
        f"retention.json beside it to 0: the ids of removed tasks are then new again"
    )
