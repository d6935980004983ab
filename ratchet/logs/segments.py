"""The files of a log: how they are named, sealed, compressed, and put in order again after a crash.

A log `<name>` is one sequence of bytes. Its *position* counts from the first byte ever written. The newest bytes are in
the active file `<name>.jsonl`; older ones in sealed segments `<name>-<start>-<end>.jsonl`, soon compressed to
`….jsonl.zst`, where `<start>` and `<end>` are positions in 15 digits. Where the active file starts is where the newest
sealed segment ends: never remove the newest one. `retention.json` says where each log begins now, after its oldest
segments were removed on purpose; without it a missing segment is a loss that readers refuse to pass over. It is written
before the segments go, so that a crash in between leaves files that nobody reads, never a gap.

Which lines are good is not decided here.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from io import BufferedReader, FileIO, RawIOBase
from itertools import groupby, pairwise
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, BinaryIO, cast

import msgspec
import zstandard

from ratchet.files.atomic_file import replace_file, sync_folder
from ratchet.logs.names import START_OFFSETS, active_path
from ratchet.service.errors import JournalError, LogRemoved
from ratchet.service.telemetry import Log

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_LINE_BYTES = 32 * 1024 * 1024
"""Longest line that is written or read, its newline not counted."""

Changing = Callable[[], AbstractContextManager[None]]
"""Around each change of a file's name (ratchet/logs/leadership.py)."""
Position = int
"""Bytes since the beginning of the log, over all its segments."""

COMPRESSION_LEVEL = 3
BUFFER_BYTES = 1024 * 1024
TEMPORARY = ".tmp"

log = Log(__name__)


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """A sealed file with the bytes from `start` to before `end`; its last line is whole."""

    folder: Path
    name: str
    start: Position
    end: Position
    compressed: bool = False

    @property
    def path(self) -> Path:
        return self.folder / f"{self.name}-{self.start:015d}-{self.end:015d}.jsonl{'.zst' if self.compressed else ''}"

    @property
    def size(self) -> int:
        """Bytes of the log it holds, whatever the file's own size."""
        return self.end - self.start

    def open(self) -> BinaryIO:
        """Its content from the start; a compressed one is decompressed as it is read. Raises FileNotFoundError."""
        if self.compressed:
            return _decompress(self.path.open("rb", BUFFER_BYTES))
        return cast(BinaryIO, BufferedReader(_Sealed(self.path, self.size), BUFFER_BYTES))


class _Sealed(FileIO):
    """Reads no further than where the file was sealed: what a former leader put behind that is no part of the log."""

    def __init__(self, path: Path, size: int) -> None:
        super().__init__(path, "rb")
        self._size = size

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        return super().readinto(view[: max(0, self._size - self.tell())]) or 0


def _decompress(file: BinaryIO) -> BinaryIO:
    stream = zstandard.ZstdDecompressor().stream_reader(file, read_size=BUFFER_BYTES, closefd=True)
    return BufferedReader(cast(RawIOBase, stream), BUFFER_BYTES)


def sealed_segments(folder: Path, name: str) -> list[Segment]:
    """Return them in order; a plain one before its compressed copy where both are there. Empty if there is no such
    folder."""
    pattern = re.compile(rf"{re.escape(name)}-(\d{{15}})-(\d{{15}})\.jsonl(\.zst)?")
    found = (pattern.fullmatch(path.name) for path in (folder.iterdir() if folder.is_dir() else ()))
    return sorted(Segment(folder, name, int(match[1]), int(match[2]), match[3] is not None) for match in found if match)


def sealed_end(segments: list[Segment]) -> Position:
    """Return where the active file starts."""
    return segments[-1].end if segments else 0


def oldest_position(folder: Path, name: str) -> Position:
    """Return where the rest of the log begins: its oldest segments may have been put away."""
    return min((segment.start for segment in sealed_segments(folder, name)), default=0)


def refuse_overlap(segments: list[Segment]) -> None:
    """Raises JournalError: two segments that hold the same bytes are the work of a second writer or of a copy."""
    for before, after in pairwise(segments):
        if after.start < before.end and (after.start, after.end) != (before.start, before.end):
            raise JournalError(
                f"{before.path} and {after.path.name} overlap, so one of them is not of this log: move it away"
            )


def seal(folder: Path, name: str, start: Position, end: Position) -> Segment:
    """Rename the active file, which must be synced and closed, to what it holds. Does not sync the folder."""
    segment = Segment(folder, name, start, end)
    active_path(folder, name).rename(segment.path)
    return segment


def tidy(folder: Path, name: str) -> None:
    """Leave one file per segment and no half-written copy, after a crash. Only the log's writer may call it."""
    for path in folder.glob(f"{name}-*{TEMPORARY}"):
        path.unlink(missing_ok=True)
    segments = sealed_segments(folder, name)
    for _, twins in groupby(segments, key=lambda segment: (segment.start, segment.end)):
        match list(twins):
            case [plain, copy]:
                _spare(plain, copy).path.unlink()
    refuse_overlap(segments)


def _spare(plain: Segment, copy: Segment) -> Segment:
    if is_whole(copy):
        return plain
    if is_whole(plain):
        return copy
    raise JournalError(f"neither {plain.path} nor {copy.path.name} is whole: restore one of them from a copy")


def is_whole(segment: Segment) -> bool:
    """True if it holds the bytes its name says; a compressed one is read to its end, checksum included."""
    if not segment.compressed:
        return segment.path.stat().st_size >= segment.size
    count = 0
    try:
        with segment.open() as content:
            while block := content.read(BUFFER_BYTES):
                count += len(block)
    except zstandard.ZstdError:
        return False
    return count == segment.size


def compress_sealed(folder: Path, name: str, changing: Changing = nullcontext) -> None:
    """Compress every sealed segment that is not yet, oldest first. Raises OSError, JournalError."""
    for segment in sealed_segments(folder, name):
        if not segment.compressed:
            compress(segment, changing)


def compress(segment: Segment, changing: Changing = nullcontext) -> Segment:
    """Replace a sealed file by its compressed copy, which has been read back and compared first.

    A crash at any point leaves a whole file; `tidy` removes what is too many. Raises OSError (the disk may be full) and
    JournalError (the segment is damaged, or the copy differs); the plain file is then still there.
    """
    if not is_whole(segment):
        raise JournalError(f"{segment.path} does not hold as many bytes as its name says: restore it from a copy")
    compressed = Segment(segment.folder, segment.name, segment.start, segment.end, compressed=True)
    temporary = compressed.path.with_name(f"{compressed.path.name}.{token_hex(4)}{TEMPORARY}")  # nobody else's
    began = time.monotonic()
    try:
        _write_compressed(segment, temporary)
        if not _same_content(segment, temporary):
            raise JournalError(f"the compressed copy of {segment.path} does not read back the same: check the disk")
        with changing():
            temporary.rename(compressed.path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, zstandard.ZstdError):
            raise JournalError(f"{segment.path} can't be compressed: {error}") from error
        raise
    sync_folder(segment.folder)
    with changing():
        segment.path.unlink()
    sync_folder(segment.folder)
    log.info("compressed", f"{segment.path.name} compressed", seconds=round(time.monotonic() - began, 3))
    return compressed


def _write_compressed(segment: Segment, target: Path) -> None:
    compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL, write_checksum=True)
    with segment.open() as source, target.open("xb") as sink:
        compressor.copy_stream(source, sink, size=segment.size, read_size=BUFFER_BYTES, write_size=BUFFER_BYTES)
        sink.flush()
        os.fsync(sink.fileno())


def _same_content(plain: Segment, compressed: Path) -> bool:
    """True if both read the same and as many bytes as the segment's name says."""
    remaining = plain.size
    try:
        with plain.open() as one, _decompress(compressed.open("rb")) as two:
            while block := one.read(BUFFER_BYTES):
                remaining -= len(block)
                if two.read(len(block)) != block:
                    return False
            return remaining == 0 and not two.read(1)
    except zstandard.ZstdError:
        return False


class LogStartOffsets(msgspec.Struct, frozen=True):
    """The parts that were removed from the logs of one folder."""

    begins: dict[str, Position] = {}
    """The first byte of each log that is still there."""
    sequence: int = 0
    """Tasks with a lower assignment number were removed: they are known by the sums of their ids only."""
    ids: int = 0
    """The number of ids of such tasks that were ever kept (`ratchet/logs/retention/removed_ids.py`)."""

    def begin(self, log: str) -> Position:
        return self.begins.get(log, 0)


_decoder = msgspec.json.Decoder(LogStartOffsets)


def read_start_offsets(folder: Path) -> LogStartOffsets:
    """Raises JournalError for a file that can't be read."""
    path = folder / START_OFFSETS
    try:
        return _decoder.decode(path.read_bytes())
    except FileNotFoundError:
        return LogStartOffsets()
    except (OSError, msgspec.DecodeError) as error:
        raise JournalError(f"{path} can't be read ({error}): restore it from a copy of the logs folder") from None


def write_start_offsets(folder: Path, starts: LogStartOffsets) -> None:
    """Returns once it is on disk. Raises DiskFull, JournalError."""
    replace_file(folder / START_OFFSETS, msgspec.json.format(msgspec.json.encode(starts), indent=1) + b"\n")


def refuse_removed(folder: Path, name: str, position: Position) -> None:
    """Raises LogRemoved if the byte at the position was removed on purpose."""
    if position < (begin := read_start_offsets(folder).begin(name)):
        raise LogRemoved(
            f"{active_path(folder, name)} begins at byte {begin:,} now: what was before, byte {position:,} too, was "
            f"removed to stay within RATCHET_LOG_KEEP_GB and RATCHET_LOG_KEEP_DAYS. It may be in a backup"
        )
