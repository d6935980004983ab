"""Shorter ways to a bounded log than the pruner's: the newest segments of an audit, what was said of tasks left.

As there, the place where the log begins is on disk before a file goes, and the newest sealed segment stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise, takewhile
from pathlib import Path

import msgspec

from ratchet.files.append_file import explain
from ratchet.files.atomic_file import sync_folder
from ratchet.logs.leadership import UNFENCED, Fence
from ratchet.logs.names import ASSIGNMENTS
from ratchet.logs.retention.contents import time_at
from ratchet.logs.segments import Position, Segment, read_start_offsets, sealed_segments, write_start_offsets


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
    """From the oldest on, up to the first that still has to be."""
    begin = read_start_offsets(folder).begin(log)
    left = (segment for segment in sealed_segments(folder, log) if segment.end > begin)
    return list(takewhile(lambda segment: segment.compressed, left))
