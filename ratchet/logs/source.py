"""Opens the file of a log that holds a position, whatever its writer renames, compresses or removes meanwhile.

Where lines begin and end is not known here, save for one check: that the position is at the beginning of one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import zstandard

from ratchet.logs.names import active_path
from ratchet.logs.segments import (
    BUFFER_BYTES,
    Position,
    Segment,
    read_start_offsets,
    refuse_overlap,
    refuse_removed,
    sealed_end,
    sealed_segments,
)
from ratchet.service.errors import JournalError

LISTINGS = 10
LISTING_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class Source:
    """An open file of the log: `start` is the position of its first byte, `end` is None for the active file."""

    path: Path
    stream: BinaryIO
    start: Position
    end: Position | None

    def at(self, position: Position) -> Source:
        """Moved to the position. Raises JournalError if no line starts there."""
        if position == self.start:
            return self
        try:
            self._skip(position - self.start - 1)
            before = self.stream.read(1)
        except (OSError, zstandard.ZstdError) as error:
            self.stream.close()
            raise self.damage_error(position, str(error)) from error
        if before != b"\n":
            self.stream.close()
            raise _no_line_at(position, self.path)
        return self

    def damage_error(self, position: Position, reason: str) -> JournalError:
        return JournalError(
            f"{self.path} can't be read on from byte {position:,} of the log: {reason}. Restore it from a copy, or "
            f"go on reading behind it"
        )

    def _skip(self, count: int) -> None:
        if self.path.suffix != ".zst":
            self.stream.seek(count)
            return
        while count > 0 and (block := self.stream.read(min(count, BUFFER_BYTES))):
            count -= len(block)


def open_source(folder: Path, name: str, position: Position) -> Source | None:
    """The file that holds the byte at the position, or the active file if it is the end; None if there is no log.

    A listing made during a rename may show neither name, and a listed file may be gone when it is opened: where
    something is missing the listing is made again, and only what stays missing is an error (JournalError).
    """
    listings = LISTINGS
    while listings:
        segments = sealed_segments(folder, name)
        refuse_overlap(segments)
        end = sealed_end(segments)
        if position < end:
            if (source := _open_sealed(segments, position)) is not None:
                return source.at(position)
            listings -= 1
            time.sleep(LISTING_PAUSE_S)
            continue
        source = _open_active(folder, name, end)
        if is_active_from(folder, name, end):
            return _check_position(source, active_path(folder, name), position, end)
        if source is not None:
            source.stream.close()
    refuse_removed(folder, name, position)
    raise _gap(segments, position)


def has_place(folder: Path, name: str, position: Position) -> bool:
    """False where a line can't begin there: the position is of another log. True where it was removed on purpose."""
    try:
        source = open_source(folder, name, max(position, read_start_offsets(folder).begin(name)))
    except JournalError:
        return False
    if source is not None:
        source.stream.close()
    return True


def is_active_from(folder: Path, name: str, start: Position) -> bool:
    """True if the active file starts there, so that it was not sealed since."""
    return sealed_end(sealed_segments(folder, name)) == start


def _open_active(folder: Path, name: str, start: Position) -> Source | None:
    path = active_path(folder, name)
    try:
        return Source(path, path.open("rb", BUFFER_BYTES), start, None)
    except FileNotFoundError:
        return None


def _open_sealed(segments: list[Segment], position: Position) -> Source | None:
    for segment in segments:
        if segment.start <= position < segment.end:
            try:
                return Source(segment.path, segment.open(), segment.start, segment.end)
            except FileNotFoundError:
                continue
    return None


def _check_position(source: Source | None, path: Path, position: Position, end: Position) -> Source | None:
    if source is None and position > end:
        raise _no_line_at(position, path)
    return source and source.at(position)


def _no_line_at(position: Position, path: Path) -> JournalError:
    return JournalError(
        f"no line starts at byte {position:,} of the log of {path}: the position is of another log, or the log was cut "
        f"back after it was read. A reader begins again at byte 0"
    )


def _gap(segments: list[Segment], position: Position) -> JournalError:
    after = min(segment.start for segment in segments if segment.start > position)
    before = max((segment.end for segment in segments if segment.end <= position), default=0)
    missing = Segment(segments[0].folder, segments[0].name, before, after)
    return JournalError(
        f"{missing.path}(.zst), or the segments that made it up, is missing: put it back, or read on "
        f"from byte {after:,}"
    )
