"""What a sealed segment holds, as far as its removal needs to know: whose tasks, up to which number, from when on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from ratchet.logs.reader import read_json
from ratchet.logs.retention.removed_ids import sum_of
from ratchet.logs.segments import Position, Segment

ASSIGNMENTS = "assignments"
INTERACTIONS = "agent_interactions"
LOGS = (ASSIGNMENTS, INTERACTIONS)


class _Arm(msgspec.Struct):
    sequence: int


class _Assigned(msgspec.Struct):
    task_id: str


class _Numbered(msgspec.Struct):
    arm: _Arm


class _Dated(msgspec.Struct):
    admitted_at: datetime | None = None
    timestamp: datetime | None = None


T = TypeVar("T")


def tasks_in(segment: Segment) -> list[int]:
    """The sums of the ids of the tasks with lines in it."""
    return [sum_of(assigned.task_id) for assigned in _values(segment, _Assigned)]


def last_sequence(segment: Segment) -> int:
    """The highest assignment number of the tasks with lines in it; -1 without any."""
    return max((numbered.arm.sequence for numbered in _values(segment, _Numbered)), default=-1)


def time_at(folder: Path, log: str, position: Position) -> datetime | None:
    """When the first good line from there on was written; None where there is none."""
    for record in read_json(folder, log, _Dated, position, on_bad=lambda bad: None):
        return record.value.admitted_at or record.value.timestamp
    return None


def _values(segment: Segment, type_: type[T]) -> Iterator[T]:
    """Lines that can't be read are passed over: they are in quarantine."""
    for record in read_json(segment.folder, segment.name, type_, segment.start, on_bad=lambda bad: None):
        if record.position >= segment.end:
            return
        yield record.value
