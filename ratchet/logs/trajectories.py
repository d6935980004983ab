"""Trajectories: the segments of conversations that are too long for a line of the log, a file each, named by their sum.

`trajectories/<sha256>.zst` in the logs folder is JSON, compressed with zstd, and names its task and sample, so that no
two lines share one. It is on disk before the line that refers to it, and goes with that line (retention/). The sum is
of what it expands to. Who reads one that is missing or damaged is told so by TrajectoryUnreadable, and goes on.

An empty file `trajectories/unlogged/<sha256>-<position>` lies there from before a trajectory is written until its line
is in the log, at that position or behind it. So what a kill left without a line is known, and swept, without reading
more of the log than was written since.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import msgspec
import zstandard

from ratchet.files.append_file import explain
from ratchet.files.atomic_file import sync_folder
from ratchet.logs.leadership import UNFENCED, Fence
from ratchet.logs.names import INTERACTIONS
from ratchet.logs.reader import Line, read
from ratchet.logs.rows import ReferenceRow, SegmentRow
from ratchet.logs.segments import MAX_LINE_BYTES, Position, read_start_offsets
from ratchet.service import failpoint
from ratchet.service.errors import JournalError
from ratchet.service.telemetry import Log
from schemas.messages.base import DecodeError, Record
from schemas.messages.response import Segment
from schemas.records.interaction import Interaction, Trajectory

FOLDER = "trajectories"
UNLOGGED = "unlogged"
LONGEST_IN_LINE = 64 * 1024
"""Bytes of segments that a line holds itself."""
MOST_BYTES = MAX_LINE_BYTES
"""Bytes that one may expand to: as much as a line may hold."""
MOST_WINDOW = 8 * 1024 * 1024
"""Bytes of what it has expanded already that one may refer back to: they are kept in memory."""
COMPRESSION_LEVEL = 3
REFERS = b'"trajectory":{'
"""The mark in each line that has one; within a string of JSON the quotes are written otherwise."""
_NAME = re.compile(r"[0-9a-f]{64}")
_UNLOGGED = re.compile(r"([0-9a-f]{64})-(\d+)")

log = Log(__name__)


class TrajectoryUnreadable(JournalError):
    """It is missing, or not what was written. `missing`: which of the two."""

    def __init__(self, sha256: str, why: str, *, missing: bool = False) -> None:
        super().__init__(f"the trajectory {FOLDER}/{sha256[:12]}….zst can't be read: {why}")
        self.missing = missing


class Content(Record):
    """The content of a file."""

    task_id: str
    sample: int
    segments: tuple[Segment, ...]


class _ContentRow(msgspec.Struct):
    segments: list[SegmentRow]


def taken_out(line: Interaction) -> tuple[Interaction, bytes | None]:
    """The line as it is logged, and the content of its trajectory; None where the line holds its segments itself."""
    if line.segments is None or line.sample is None:
        return line, None
    content = Content(task_id=line.task_id, sample=line.sample, segments=line.segments).model_dump_json().encode()
    if len(content) <= LONGEST_IN_LINE:
        return line, None
    if len(content) > MOST_BYTES:
        raise JournalError(
            f"sample {line.sample} of task {line.task_id!r} has segments of {len(content):,} bytes, and may have "
            f"{MOST_BYTES:,}: nobody could read them"
        )
    reference = Trajectory(
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
        segments=len(line.segments),
        sampled_tokens=line.sampled_tokens or 0,
    )
    return line.model_copy(update={"segments": None, "trajectory": reference}), content


def fill_segments(logs_dir: Path, line: Interaction) -> Interaction:
    """Return the line with its segments, wherever they lie. Blocks; raises TrajectoryUnreadable."""
    reference = line.trajectory
    if reference is None or line.segments is not None:
        return line
    try:
        content = Content.model_validate_json(_expand(logs_dir, reference.sha256, reference.size))
    except ValueError as error:
        raise TrajectoryUnreadable(reference.sha256, f"it holds no segments ({error.__class__.__name__})") from None
    return line.model_copy(update={"segments": content.segments})


def segments_at(logs_dir: Path, reference: ReferenceRow) -> list[SegmentRow]:
    """Return the segments as the trainer reads them. Blocks; raises TrajectoryUnreadable."""
    try:
        return msgspec.json.decode(_expand(logs_dir, reference.sha256, reference.size), type=_ContentRow).segments
    except (msgspec.DecodeError, RecursionError) as error:
        raise TrajectoryUnreadable(reference.sha256, f"it holds no segments ({error})") from None


def path_of(logs_dir: Path, sha256: str) -> Path:
    return logs_dir / FOLDER / f"{sha256}.zst"


def _expand(logs_dir: Path, sha256: str, size: int) -> bytes:
    """Never more than a byte beyond `size`, whatever the file expands to."""
    if not _NAME.fullmatch(sha256) or not 0 <= size <= MOST_BYTES:
        raise TrajectoryUnreadable(sha256, "its line is wrong about it")
    try:
        content = _read(path_of(logs_dir, sha256), size + 1)
    except FileNotFoundError:
        raise TrajectoryUnreadable(sha256, "it is not there (any more)", missing=True) from None
    except (OSError, zstandard.ZstdError) as error:
        raise TrajectoryUnreadable(sha256, str(error)) from None
    if len(content) != size or hashlib.sha256(content).hexdigest() != sha256:
        raise TrajectoryUnreadable(sha256, "it does not hold what was written")
    return content


def _read(path: Path, most: int) -> bytes:
    """Read an ordinary file only: not through a link, nor from a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path.name} is no ordinary file")
        return zstandard.ZstdDecompressor(max_window_size=MOST_WINDOW).stream_reader(file).read(most)


class TrajectoryFolder:
    """The writer's side: whoever leads the logs folder. All of it blocks."""

    def __init__(self, logs_dir: Path, fence: Fence = UNFENCED) -> None:
        self._logs_dir = logs_dir
        self._folder = logs_dir / FOLDER
        self._unlogged = self._folder / UNLOGGED
        self._fence = fence

    def write(self, contents: Mapping[str, bytes], position: Position) -> None:
        """Write them by their sums; all are on disk when this returns. `position`: where the log ends, before their
        lines.

        Raises DiskFull, JournalError: the next try writes all of them again.
        """
        self._fence.check()
        try:
            if not self._unlogged.is_dir():
                self._unlogged.mkdir(parents=True, exist_ok=True)
                sync_folder(self._logs_dir)
            for sha256 in contents:
                self._mark(sha256, position).touch()
            sync_folder(self._unlogged)
            for sha256, content in contents.items():
                self._write(sha256, content)
            sync_folder(self._folder)
        except OSError as error:
            raise explain(error, self._folder) from error
        failpoint.reach("trajectory-written")

    def mark_logged(self, sums: Collection[str], position: Position) -> None:
        """Their lines, for which they were written at that position, are in the log."""
        failpoint.reach("trajectory-logged")
        for sha256 in sums:
            with suppress(OSError):  # what stays is looked for in the log at the next start
                self._mark(sha256, position).unlink(missing_ok=True)

    def sweep(self) -> list[str]:
        """Remove those that never got a line, and return their sums. Only at a time when nobody writes the log.

        Raises DiskFull, JournalError.
        """
        try:
            found = {path: match for path in self._files_left() if (match := _UNLOGGED.fullmatch(path.name))}
            since = min((int(match[2]) for match in found.values()), default=0)
            named = set(references(self._logs_dir, since)) if found else set[str]()
            orphans = {match[1] for match in found.values()} - named
            with self._fence.changing():
                for sha256 in orphans:
                    path_of(self._logs_dir, sha256).unlink(missing_ok=True)
                for path in self._files_left():
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise explain(error, self._folder) from error
        if orphans:
            log.info("swept", "trajectories whose lines were never written are removed", count=len(orphans))
        return sorted(orphans)

    def _files_left(self) -> list[Path]:
        return list(self._unlogged.iterdir()) if self._unlogged.is_dir() else []

    def _mark(self, sha256: str, position: Position) -> Path:
        return self._unlogged / f"{sha256}-{position}"

    def _write(self, sha256: str, content: bytes) -> None:
        temporary = self._unlogged / f"{sha256}.{uuid4().hex}.tmp"
        try:
            with temporary.open("xb") as file:
                file.write(zstandard.ZstdCompressor(COMPRESSION_LEVEL, write_checksum=True).compress(content))
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(path_of(self._logs_dir, sha256))
        finally:
            temporary.unlink(missing_ok=True)


def references(logs_dir: Path, since: Position) -> Iterator[str]:
    """The sums that lines from there on name; from the log's beginning where no line begins there any more.

    Raises JournalError.
    """
    since = max(since, read_start_offsets(logs_dir).begin(INTERACTIONS))
    try:
        lines = list(_referring(read(logs_dir, INTERACTIONS, since, on_bad=lambda bad: None)))
    except JournalError:
        lines = list(_referring(read(logs_dir, INTERACTIONS, on_bad=lambda bad: None)))
    yield from lines


def _referring(lines: Iterator[Line]) -> Iterator[str]:
    for line in lines:
        if (sha256 := sum_in(line.data)) is not None:
            yield sha256


def sum_in(line: bytes) -> str | None:
    """Return the sum of the trajectory that a line refers to."""
    if REFERS not in line:
        return None
    with suppress(DecodeError, msgspec.DecodeError, RecursionError):
        reference = msgspec.json.decode(line, type=_ReferringRow).trajectory
        if reference is not None and _NAME.fullmatch(reference.sha256):
            return reference.sha256
    return None


class _ReferringRow(msgspec.Struct):
    trajectory: ReferenceRow | None = None


def remove(logs_dir: Path, sums: Collection[str]) -> int:
    """Bytes that were freed. Raises OSError."""
    freed = 0
    for sha256 in sums:
        path = path_of(logs_dir, sha256)
        with suppress(FileNotFoundError):
            size = path.stat().st_size
            path.unlink()
            freed += size
    return freed


def disk_bytes(logs_dir: Path) -> int:
    """Return the bytes of all there are."""
    total = 0
    with suppress(FileNotFoundError), os.scandir(logs_dir / FOLDER) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # removed just now
                total += entry.stat(follow_symlinks=False).st_size
    return total
