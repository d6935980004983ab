"""`quarantine.jsonl`: every line of a log that can't be read, kept whole, with where it was and what is wrong with it.

Nothing reads it but people; nothing is ever removed from it by us. From 256 MiB on it takes no more: so many bad lines
are a damaged disk, which the log of the process says.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import msgspec

from ratchet.files.line_file import append_line
from ratchet.logs.names import QUARANTINE
from ratchet.logs.segments import Position
from ratchet.service.telemetry import Log

MAX_BYTES = 256 * 1024 * 1024

log = Log("quarantine")


class BadLine(NamedTuple):
    """`data` is without its newline; of a line that is too long it is the beginning."""

    file: str
    """The log, as the name of its active file: it stays the same when the line moves to a sealed segment."""
    position: Position
    reason: str
    data: bytes


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line as written: `line` where the bytes are UTF-8, else `line_base64`."""

    file: str
    position: Position
    reason: str
    line: str | None = None
    line_base64: str | None = None


_decoder = msgspec.json.Decoder(Entry)


class Quarantine:
    """Call it with a BadLine, or give it to a reader as `on_bad`. The same bytes at the same place are kept once.

    Several processes may append to the same file. Raises DiskFull or JournalError if the disk does not take the line.
    """

    def __init__(self, folder: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self.path = folder / QUARANTINE
        self._max_bytes = max_bytes
        self._seen = {_key(bad) for bad in read_quarantine(folder)}

    def __call__(self, bad: BadLine) -> None:
        if (key := _key(bad)) not in self._seen:
            self._append(_encode(bad))
            self._seen.add(key)

    def _append(self, line: bytes) -> None:
        if not append_line(self.path, line, self._max_bytes):
            log.error("quarantine-full", f"{self.path} is full: this line is passed over: {line[:200]!r}")


def read_quarantine(folder: Path) -> Iterator[BadLine]:
    """Yield what is in quarantine; a line torn by a crash is passed over, for its bad line is found again."""
    path = folder / QUARANTINE
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            try:
                entry = _decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            data = base64.b64decode(entry.line_base64) if entry.line_base64 else (entry.line or "").encode()
            yield BadLine(entry.file, entry.position, entry.reason, data)


def _encode(bad: BadLine) -> bytes:
    try:
        entry = Entry(bad.file, bad.position, bad.reason, line=bad.data.decode())
    except UnicodeDecodeError:
        entry = Entry(bad.file, bad.position, bad.reason, line_base64=base64.b64encode(bad.data).decode())
    return msgspec.json.encode(entry) + b"\n"


def _key(bad: BadLine) -> tuple[str, Position, bytes]:
    return bad.file, bad.position, blake2b(bad.data, digest_size=16).digest()
