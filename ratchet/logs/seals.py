"""The statements of a log's writer on what it wrote: a seal for each sealed segment, and a mark of how far the active
file goes.

The chain of a stretch of lines begins with 32 zero bytes; each line makes it sha256(chain + sum of the line). The sum
of a line is its sha256, but for a tombstone, which stands in the place of an erased line and says that line's sum. So
what is erased leaves the chain as it was, and any other change does not.

Seals and mark lie in another folder than the log: who can write to the logs alone can't make both agree. Seals are
chained themselves (ratchet/files/hash_chain.py). The mark is written after each append without a sync, so a kill loses
none of it and a power cut may. What is behind the mark at a start is a write that nobody was told of, or a stranger's:
it is noted as found, and teaches nothing. Nothing here keeps the log from being written.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec

from ratchet.files import hash_chain
from ratchet.files.atomic_file import append_line
from ratchet.files.hash_chain import Link
from ratchet.logs.segments import Position
from ratchet.service.errors import JournalError
from ratchet.service.telemetry import Log

NOTHING = bytes(32)
MARK_BYTES = 256
MOST_BYTES = 1 << 30
READ_BYTES = 1 << 20
TOMBSTONE = re.compile(rb'\{"erased_sha256":"([0-9a-f]{64})" *\}')
_BEGINS = b'{"erased_sha256":'

log = Log("seals")

Kind = Literal["began", "seal", "found", "appended", "cut"]
"""`began`: what is before `end` is older than the seals. `found` at a start behind the mark; `appended`: the same after
the writer had ended in order, so by somebody else. `cut`: from `start` to `end` was written, and gone at a start."""


class Seal(msgspec.Struct, frozen=True):
    """A line of the seals; `chain` of a segment that was sealed."""

    kind: Kind
    start: Position
    end: Position
    chain: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """The active file begins at `start`, and was written up to `end`. `closed`: its writer has ended in order."""

    start: Position
    end: Position
    chain: str
    closed: bool = False


@dataclass(slots=True)
class SealBook:
    """All that is known of one log; `fault` says where the seals themselves were changed."""

    seals: list[Seal] = field(default_factory=list)
    strange: list[tuple[Position, Position]] = field(default_factory=list)
    """Stretches that no writer of ours vouches for."""
    mark: Mark | None = None
    fault: str | None = None

    def is_strange(self, position: Position) -> bool:
        return any(start <= position < end for start, end in self.strange)


NO_SEALS = SealBook()


def line_sum(line: bytes) -> bytes:
    erased = TOMBSTONE.fullmatch(line)
    return bytes.fromhex(erased[1].decode()) if erased else sha256(line).digest()


def extend_chain(chain: bytes, lines: Iterable[bytes]) -> bytes:
    """The chain after these lines, given without their newlines."""
    for line in lines:
        of_line = line_sum(line) if line.startswith(_BEGINS) else sha256(line).digest()
        chain = sha256(chain + of_line).digest()
    return chain


def is_tombstone(line: bytes) -> bool:
    return line.startswith(_BEGINS) and TOMBSTONE.fullmatch(line) is not None


def read_seals(folder: Path, name: str) -> SealBook:
    """Empty where nothing was ever sealed. A torn last line, as after a crash, is passed over. Raises OSError."""
    book, link = SealBook(mark=_read_mark(folder / f"{name}.mark")), Link()
    for number, line in enumerate(_whole_lines(folder / f"{name}.seals.jsonl"), 1):
        try:
            link, fields = hash_chain.follow(link, line)
            seal = msgspec.convert(fields, Seal)
            if seal.kind == "cut":  # what was said of those bytes is true of none that came after
                book.seals = [one for one in book.seals if one.end <= seal.start]
            book.seals.append(seal)
        except (ValueError, msgspec.ValidationError) as error:
            book.fault = f"{folder / name}.seals.jsonl, line {number} was changed after it was written: {error}"
            break
    book.strange = [(one.start, one.end) for one in book.seals if one.kind in ("found", "appended")]
    return book


class Sealer:
    """The writer's side. Used by one thread at a time, the one that appends."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._path = folder / f"{name}.seals.jsonl"
        self._link = Link()
        self._mark = Mark(0, 0, "")
        self._chain = NOTHING
        self._file: int | None = None
        self._failed = False

    def begin(self, start: Position, end: Position, read: Callable[[int, int], bytes]) -> None:
        """The active file begins at `start` and ends at `end`; `read` gives bytes of it, from an offset on."""
        with self._forgiving():
            self._folder.mkdir(parents=True, exist_ok=True)
            self._cut_torn()
            before = _read_mark(self._folder / f"{self._name}.mark")
            self._file = os.open(self._folder / f"{self._name}.mark", os.O_RDWR | os.O_CREAT, 0o644)
            known = self._compare(before, start, end)
            self._chain = bytes.fromhex(before.chain) if before and known > start else NOTHING
            self._chain = extend_chain(self._chain, _lines_of(read, known - start, end - start))
            self._write_mark(Mark(start, end, self._chain.hex()))

    def append(self, data: bytes, end: Position) -> None:
        """These whole lines are on disk, and end there."""
        self._chain = extend_chain(self._chain, data[:-1].split(b"\n"))
        with self._forgiving():
            self._write_mark(Mark(self._mark.start, end, self._chain.hex()))

    def seal(self, start: Position, end: Position) -> None:
        """The active file was sealed with what it has, and another begins."""
        with self._forgiving():
            self._note(Seal("seal", start, end, self._chain.hex()))
            self._chain = NOTHING
            self._write_mark(Mark(end, end, self._chain.hex()))

    def close(self) -> None:
        """Close. What comes after this is not by this writer."""
        if self._file is None:
            return
        with self._forgiving():
            self._write_mark(replace(self._mark, closed=True))
            os.fsync(self._file)
        os.close(self._file)
        self._file = None

    def _compare(self, mark: Mark | None, start: Position, end: Position) -> Position:
        """Notes where the log is not as the mark says. Returns the byte of the active file that the chain goes to."""
        if mark is None:
            kind: Kind = "found" if self._link.sequence else "began"
            self._note(Seal(kind, start if kind == "found" else 0, end))
            return start
        if mark.start < mark.end == start:  # a kill came between the sealing and its seal
            self._note(Seal("seal", mark.start, mark.end, mark.chain))
        if mark.end > end:
            self._note(Seal("cut", end, mark.end))
        elif mark.end < end:
            self._note(Seal("appended" if mark.closed else "found", mark.end, end))
        return mark.end if mark.start == start and mark.end <= end else start

    def _note(self, seal: Seal) -> None:
        if seal.kind in ("found", "appended", "cut"):
            gone, strange = "were written and are gone", "were not noted as written: they teach nothing"
            what = gone if seal.kind == "cut" else strange
            log.warning("log-differs", f"{self._name}: bytes {seal.start:,} to {seal.end:,} {what}")
        link, line = hash_chain.chain_line(self._link, msgspec.to_builtins(seal))
        append_line(self._path, line + b"\n", MOST_BYTES)
        self._link = link

    def _write_mark(self, mark: Mark) -> None:
        if self._file is not None:
            os.pwrite(self._file, json.dumps(asdict(mark)).encode().ljust(MARK_BYTES - 1) + b"\n", 0)
        self._mark = mark

    def _cut_torn(self) -> None:
        """So that the next line stands alone; and goes on behind the last whole one."""
        lines = _whole_lines(self._path)
        if self._path.exists():
            os.truncate(self._path, sum(len(line) + 1 for line in lines))
        if lines:
            self._link, _ = hash_chain.follow(None, lines[-1])

    @contextmanager
    def _forgiving(self) -> Iterator[None]:
        """The log goes on without its seals: a disk that fails is said once."""
        try:
            yield
        except (OSError, JournalError, ValueError) as error:
            if not self._failed:
                what = f"{self._folder / self._name} can't be written ({error}): what is logged from now on has no seal"
                log.error("seals-behind", what)
            self._failed = True


def _read_mark(path: Path) -> Mark | None:
    """None where there is none that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Mark)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _whole_lines(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


def _lines_of(read: Callable[[int, int], bytes], offset: int, end: int) -> Iterator[bytes]:
    """Those of a file from an offset to another, where a line ends."""
    rest = b""
    while offset < end:
        block = read(offset, min(READ_BYTES, end - offset))
        offset += len(block)
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
