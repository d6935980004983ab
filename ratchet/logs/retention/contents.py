"""The contents of a sealed segment, as far as its removal needs to know: whose tasks, up to which number, from when
on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import pairwise, takewhile
from pathlib import Path
from typing import TypeVar

import msgspec
import zstandard

from ratchet.files.append_file import explain
from ratchet.files.atomic_file import sync_folder
from ratchet.logs.leadership import UNFENCED, Fence
from ratchet.logs.names import ASSIGNMENTS, TASK_LOGS
from ratchet.logs.reader import active_tail, read_json
from ratchet.logs.retention.removed_ids import sum_of
from ratchet.logs.rows import ArmedRow, DatedRow, SampleRow
from ratchet.logs.segments import Position, Segment, read_start_offsets, sealed_segments, write_start_offsets
from ratchet.logs.trajectories import sum_in

T = TypeVar("T")


def tasks_in(segment: Segment) -> list[int]:
    """The sums of the ids of the tasks with lines in it."""
    return [sum_of(row.task_id) for row in _values(segment, SampleRow)]


def trajectories_in(segment: Segment) -> list[str]:
    """The sums of the trajectories that lines in it refer to, also where the log begins behind it by now.

    As far as it can be read: what is damaged must not stay for ever. Raises OSError.
    """
    found: list[str] = []
    with segment.open() as lines, suppress(zstandard.ZstdError):
        found.extend(sha256 for line in lines if (sha256 := sum_in(line)) is not None)
    return found


def last_sequence(segment: Segment) -> int:
    """The highest assignment number of the tasks with lines in it; -1 without any."""
    return max((row.arm.sequence for row in _values(segment, ArmedRow)), default=-1)


def time_at(folder: Path, log: str, position: Position) -> datetime | None:
    """When the first good line from there on was written; None where there is none."""
    for record in read_json(folder, log, DatedRow, position, on_bad=lambda bad: None):
        return record.value.admitted_at or record.value.timestamp
    return None


def newest_time(folder: Path) -> datetime | None:
    """When the newest line of the two logs was written, or, right after a rotation, one that is not much older."""
    return max(filter(None, (_newest_of(folder, log) for log in TASK_LOGS)), default=None)


def _newest_of(folder: Path, log: str) -> datetime | None:
    for line in reversed(active_tail(folder, log, 1)):
        with suppress(msgspec.DecodeError):
            row = msgspec.json.decode(line, type=DatedRow)
            return row.admitted_at or row.timestamp
    sealed = sealed_segments(folder, log)
    return time_at(folder, log, sealed[-1].start) if sealed else None


def _values(segment: Segment, type_: type[T]) -> Iterator[T]:
    """Lines that can't be read are passed over: they are in quarantine."""
    for record in read_json(segment.folder, segment.name, type_, segment.start, on_bad=lambda bad: None):
        if record.position >= segment.end:
            return
        yield record.value


def keep_newest(folder: Path, log: str, count: int) -> None:
    """Remove the sealed segments of a log but the newest `count`, at least one. Raises DiskFull, JournalError."""
    segments = _compressed_segments(folder, log)
    if len(segments) > max(1, count):
        remove_before(folder, log, segments[-max(1, count)].start)


def trim_to_tasks(folder: Path, log: str, fence: Fence = UNFENCED) -> Position:
    """Remove lines about tasks, older than any that is left. Returns where the log begins then."""
    starts = read_start_offsets(folder)
    oldest_task = time_at(folder, ASSIGNMENTS, starts.begin(ASSIGNMENTS)) if starts.sequence else None
    if oldest_task is not None:
        for _, after in pairwise(_compressed_segments(folder, log)):
            given = time_at(folder, log, after.start)
            if given is None or given >= oldest_task:
                break
            with fence.changing():
                remove_before(folder, log, after.start)
    return read_start_offsets(folder).begin(log)


def remove_before(folder: Path, log: str, position: Position) -> None:
    """Remove the segments that end there or before, and what a crash left of an earlier removal."""
    starts = read_start_offsets(folder)
    if position > starts.begin(log):
        write_start_offsets(folder, msgspec.structs.replace(starts, begins=starts.begins | {log: position}))
    unlink_before(folder, {log: position})


def unlink_before(folder: Path, begins: Mapping[str, Position]) -> None:
    """The segments of these logs that end there or before. Raises DiskFull, JournalError."""
    try:
        for log, position in begins.items():
            for segment in sealed_segments(folder, log):
                if segment.end <= position:
                    segment.path.unlink()
        sync_folder(folder)
    except OSError as error:
        raise explain(error, folder) from error


def _compressed_segments(folder: Path, log: str) -> list[Segment]:
    """Return the compressed segments from the oldest up to the first that is not."""
    begin = read_start_offsets(folder).begin(log)
    left = (segment for segment in sealed_segments(folder, log) if segment.end > begin)
    return list(takewhile(lambda segment: segment.compressed, left))
