"""The reader of the logs: line by line, from any position, over sealed segments and the active file, while written.

Memory does not grow with the log. A torn tail is not an error: the writer may be in the middle of it. A line that can't
be read is reported, with where it is, and passed over. Not here: what the lines mean.

A reader in another process may see lines a moment before they are acknowledged. After a full disk the writer takes such
lines back, and a reader that had seen them is told that its position is gone (JournalError).
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import msgspec
import zstandard

from ratchet.logs.names import active_path
from ratchet.logs.quarantine import BadLine
from ratchet.logs.seals import is_tombstone
from ratchet.logs.segments import (
    BUFFER_BYTES,
    MAX_LINE_BYTES,
    Position,
    read_start_offsets,
    sealed_end,
    sealed_segments,
)
from ratchet.logs.source import Source, is_active_from, open_source
from ratchet.service.telemetry import Log
from schemas.messages.base import DecodeError, Message

SHOWN_OF_TOO_LONG = 64 * 1024
TAIL_BYTES = 4 * 1024 * 1024

T = TypeVar("T")
M = TypeVar("M", bound=Message)
OnBad = Callable[[BadLine], object]

log = Log(__name__)


class Line(NamedTuple):
    """A whole line, without its newline; the next one starts at `end`."""

    position: Position
    end: Position
    data: bytes


class Record(NamedTuple, Generic[T]):
    """A line's place, and the value it decoded to."""

    position: Position
    end: Position
    value: T


def warn(bad: BadLine) -> None:
    """Warn of a bad line in the log of the process: the usual thing to do."""
    log.warning("bad-line", f"{bad.file} at byte {bad.position:,} passed over: {bad.reason}")


def read(folder: Path, name: str, start: Position = 0, *, on_bad: OnBad = warn) -> Iterator[Line]:
    """Every good line from `start` on to the last whole line there is now. Each is one JSON object in UTF-8.

    0 is the oldest line that is left. Raises JournalError if a segment is missing or damaged, or `start` is not where a
    line starts; LogRemoved for another position than 0 that retention has removed.
    """
    return LogReader(folder, name, start, on_bad=on_bad).lines()


def read_json(
    folder: Path, name: str, type_: type[T], start: Position = 0, *, on_bad: OnBad = warn
) -> Iterator[Record[T]]:
    """Like `read`, decoded: into a msgspec Struct (the fastest way: only its fields are looked at), or `dict`."""
    return LogReader(folder, name, start, on_bad=on_bad).records(type_)


def decode_lines(lines: Iterable[bytes], type_: type[M]) -> Iterator[M]:
    """Yield each line as a value of its schema; one that can't be read is passed over."""
    for line in lines:
        try:
            found = type_.decode(line)
        except DecodeError:
            continue
        yield found


def follow(
    folder: Path,
    name: str,
    start: Position = 0,
    *,
    poll_s: float = 0.2,
    stop: Callable[[], bool] = lambda: False,
    on_bad: OnBad = warn,
) -> Iterator[Line]:
    """Like `read`, but waits for more, looking every `poll_s` seconds, until `stop()`, asked whenever all is read."""
    reader = LogReader(folder, name, start, on_bad=on_bad)
    while True:
        yield from reader.lines()
        if stop():
            return
        time.sleep(poll_s)


def tail_position(folder: Path, name: str, count: int) -> Position:
    """Return where the last `count` lines start, or the oldest there is. Reads no more of the log than it needs."""
    starts = file_starts(folder, name)
    for start in starts:
        lines = LogReader(folder, name, start, on_bad=lambda bad: None).whole_lines()
        last = deque((line.position for line in lines), maxlen=count)
        if len(last) == count:
            return last[0]
    return starts[-1]


def file_starts(folder: Path, name: str) -> list[Position]:
    """Yield where the active file and each sealed segment begin, the newest first."""
    sealed = sealed_segments(folder, name)
    return sorted({sealed_end(sealed), *(segment.start for segment in sealed)}, reverse=True)


def start_of_newest(folder: Path, name: str, most_bytes: int) -> Position:
    """Return the start of the first segment from which on no more than `most_bytes` are left, and never before what is
    kept."""
    active, starts = active_path(folder, name), file_starts(folder, name)
    end = starts[0] + (active.stat().st_size if active.exists() else 0)
    start = next((one for one in reversed(starts) if end - one <= most_bytes), starts[0])
    return max(start, read_start_offsets(folder).begin(name))


def active_tail(folder: Path, name: str, count: int, most_bytes: int = TAIL_BYTES) -> list[bytes]:
    """At most `count` whole lines without their newlines, the oldest first, from the file's last `most_bytes`.

    Quick however long the log is. Sealed segments are not looked into: right after a rotation there is little to see.
    """
    try:
        with active_path(folder, name).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            begin = file.seek(max(0, size - most_bytes))
            lines = file.read(size - begin).split(b"\n")
    except FileNotFoundError:
        return []
    whole = lines[1 if begin else 0 : -1]
    return whole[-count:]


def end_of_log(folder: Path, name: str) -> Position:
    """Return the position after the last whole line of a log."""
    reader = LogReader(folder, name, tail_position(folder, name, 1), on_bad=lambda bad: None)
    deque(reader.whole_lines(), maxlen=0)
    return reader.position


class LogReader:
    """Remembers how far it has read, bad lines included, so it can go on when there is more."""

    def __init__(self, folder: Path, name: str, start: Position = 0, *, on_bad: OnBad = warn) -> None:
        self.folder = folder
        self.name = name
        self.position: Position = start
        self._on_bad = on_bad

    def lines(self) -> Iterator[Line]:
        """The good lines from `position` to the present end."""
        return (line for line, _ in self._decode_lines(msgspec.json.Decoder(msgspec.Raw)))

    def records(self, type_: type[T]) -> Iterator[Record[T]]:
        """The same, decoded. A line that is JSON but not a `type_` is a bad line."""
        return (
            Record(line.position, line.end, value) for line, value in self._decode_lines(msgspec.json.Decoder(type_))
        )

    def whole_lines(self) -> Iterator[Line]:
        """All lines that end and are not too long, good or not."""
        self.position = self.position or read_start_offsets(self.folder).begin(self.name)
        while (source := open_source(self.folder, self.name, self.position)) is not None:
            with source.stream:
                yield from self._split(source)
            if source.end is None and is_active_from(self.folder, self.name, source.start):
                return

    def _decode_lines(self, decoder: msgspec.json.Decoder[T]) -> Iterator[tuple[Line, T]]:
        for line in self.whole_lines():
            if is_tombstone(line.data):
                continue
            try:
                value = decode(line.data, decoder)
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                self._report(line.position, str(error), line.data)
            else:
                yield line, value

    def _split(self, source: Source) -> Iterator[Line]:
        try:
            while data := source.stream.readline(MAX_LINE_BYTES + 1):
                if data.endswith(b"\n"):
                    position, self.position = self.position, self.position + len(data)
                    yield Line(position, self.position, data[:-1])
                elif not self._pass_over(source, data):
                    return
        except (OSError, zstandard.ZstdError) as error:
            raise source.damage_error(self.position, str(error)) from error
        if source.end is not None and self.position != source.end:
            raise source.damage_error(self.position, "it does not hold as many bytes as its name says")

    def _pass_over(self, source: Source, begun: bytes) -> bool:
        """Goes on after a line that is too long, or cut by the end of a segment. False at a torn tail."""
        size, part = len(begun), begun
        while part and not part.endswith(b"\n"):
            part = source.stream.readline(BUFFER_BYTES)
            size += len(part)
        if not part and source.end is None:
            return False
        position, self.position = self.position, self.position + size
        self._report(position, f"{size:,} bytes: too long, or without a newline", begun[:SHOWN_OF_TOO_LONG])
        return True

    def _report(self, position: Position, reason: str, data: bytes) -> None:
        self._on_bad(BadLine(active_path(self.folder, self.name).name, position, reason, data))


def decode(data: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Raises msgspec.DecodeError, ValueError or RecursionError (nested too deep) if not one JSON object in UTF-8."""
    if not data.startswith(b"{"):
        raise ValueError("not a JSON object" if data else "an empty line")
    value = decoder.decode(data)
    if not data.isascii():
        data.decode()  # the decoder looks only at the strings it needs
    return value
