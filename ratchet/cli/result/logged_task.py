"""What the logs say of one task: its samples and its result, still open, or nothing. Newest segments are read first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.logs.reader import LogReader
from ratchet.logs.segments import sealed_end, sealed_segments

ASSIGNMENTS = "assignments"
INTERACTIONS = "agent_interactions"

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LoggedTask:
    """`rows` are the task's lines in the log of interactions, one per sample; with none it is still open."""

    work: Row | None
    rows: tuple[Row, ...]

    @property
    def best(self) -> Row:
        """The line whose sample the user got: the best-scored, the first among equals."""
        return max(self.rows, key=lambda row: -1.0 if row["score"] is None else float(row["score"]))


def find_task(logs_dir: Path, task_id: str) -> LoggedTask | None:
    """None if neither log knows the id. Raises JournalError for a log that can't be read."""
    rows = _unique_samples(_newest_part_with(logs_dir, INTERACTIONS, task_id))
    work = None if rows else next(iter(_newest_part_with(logs_dir, ASSIGNMENTS, task_id)), None)
    return LoggedTask(work, tuple(rows)) if rows or work else None


def _newest_part_with(logs_dir: Path, name: str, task_id: str) -> list[Row]:
    """A task's lines lie close together: the search ends with the first segment, from the newest, that has any."""
    segments = sealed_segments(logs_dir, name)
    starts = sorted({sealed_end(segments), *(segment.start for segment in segments)})
    ends = [*starts[1:], None]
    found: list[Row] = []
    for start, end in reversed(list(zip(starts, ends, strict=True))):
        here = list(_rows(logs_dir, name, start, end, task_id))
        if found and not here:
            break
        found = here + found
    return found


def _rows(logs_dir: Path, name: str, start: int, end: int | None, task_id: str) -> Iterator[Row]:
    needle = json.dumps(task_id, ensure_ascii=False).encode()
    for line in LogReader(logs_dir, name, start, on_bad=lambda bad: None).lines():
        if end is not None and line.position >= end:
            return
        if needle in line.data and (row := json.loads(line.data)).get("task_id") == task_id:
            yield row


def _unique_samples(rows: list[Row]) -> list[Row]:
    """A crash in the middle of a group may have logged a sample twice; the first line counts."""
    first: dict[Any, Row] = {}
    for row in rows:
        first.setdefault(row.get("sample"), row)
    return list(first.values())
