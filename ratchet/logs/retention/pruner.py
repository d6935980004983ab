"""Removes from the logs what is over their bound: the ids kept first, then where the log begins, then the trajectories
that its lines refer to, then the file itself.

A crash between two steps leaves sums that are cut off, or files that nobody reads: the next turn finishes. Who calls it
leads the folder, or only looks (`dry`). Blocks on the disk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from ratchet.files.append_file import explain
from ratchet.logs.leadership import UNFENCED, Fence
from ratchet.logs.names import ASSIGNMENTS, INTERACTIONS, TASK_LOGS, active_path
from ratchet.logs.retention.contents import last_sequence, tasks_in, time_at, trajectories_in, unlink_before
from ratchet.logs.retention.needs import Needs
from ratchet.logs.retention.plan import Bound, Held, Part, Planner, Removal
from ratchet.logs.retention.removed_ids import append, drop_old
from ratchet.logs.segments import (
    LogStartOffsets,
    Position,
    Segment,
    read_start_offsets,
    sealed_segments,
    write_start_offsets,
)
from ratchet.logs.trajectories import disk_bytes, path_of, remove
from ratchet.service import failpoint
from ratchet.service.telemetry import Log

log = Log("retention")

EPOCH = datetime.fromtimestamp(0, UTC)
LOOK_EVERY_S = 300.0
"""Between two counts of the trajectories' bytes: there may be very many of them."""


@dataclass(slots=True)
class Pruned:
    """The segments that went (or would go), what could not, and how much of both logs is left on disk, trajectories
    included."""

    removed: list[Part] = field(default_factory=list)
    held: Held | None = None
    disk_bytes: int = 0


class Pruner:
    def __init__(self, folder: Path, bound: Bound, fence: Fence = UNFENCED) -> None:
        self._folder = folder
        self._bound = bound
        self._fence = fence
        self._last: dict[Segment, int] = {}
        """Highest task number by segment, of those that were held before: they are not read twice."""
        self._first_at: dict[tuple[str, Position], datetime] = {}
        """When the first line was written by log and position: a sealed segment is opened once, not at every turn."""
        self._trajectories = 0
        self._looked_at = float("-inf")

    def prune(self, needs: Needs, present: datetime | None, *, dry: bool = False) -> Pruned:
        """`present`: as `Planner.next`. Raises DiskFull, JournalError; what went until then is gone."""
        starts = read_start_offsets(self._folder)
        if not dry:
            with self._fence.changing():
                self._finish(starts)
        parts = {name: self._removable(name, starts) for name in TASK_LOGS}
        planner = Planner(self._bound, needs, self._last_sequence)
        pruned = Pruned(disk_bytes=self.disk_bytes())
        while isinstance(step := planner.next(parts, pruned.disk_bytes, starts.sequence, present), Removal):
            of_lines = self._trajectory_bytes(step.part.segment)
            starts = moved_behind(starts, step, starts.ids) if dry else self._remove(starts, step)
            parts[step.part.segment.name].pop(0)
            pruned.removed.append(step.part)
            pruned.disk_bytes -= step.part.disk_bytes + of_lines
            self._trajectories -= 0 if dry else of_lines
        pruned.held = step
        return pruned

    def disk_bytes(self) -> int:
        """Return the bytes of both logs, and of their trajectories as they were counted last."""
        return sum(sizes(self._folder).values()) + self.trajectory_bytes()

    def trajectory_bytes(self) -> int:
        if monotonic() - self._looked_at > LOOK_EVERY_S:
            self._trajectories, self._looked_at = disk_bytes(self._folder), monotonic()
        return self._trajectories

    def _removable(self, name: str, starts: LogStartOffsets) -> list[Part]:
        """All sealed segments but the newest and those that are gone already."""
        ends = {segment.end: segment for segment in sealed_segments(self._folder, name)}
        segments = [segment for end, segment in sorted(ends.items()) if end > starts.begin(name)]
        times = [self._first_time(segment) or EPOCH for segment in segments]
        return [
            Part(segment, size_of(segment.path), first, max(first, last))
            for segment, first, last in zip(segments[:-1], times, times[1:], strict=False)
        ]

    def _first_time(self, segment: Segment) -> datetime | None:
        place = segment.name, segment.start
        if place not in self._first_at and (first := time_at(self._folder, *place)):
            self._first_at[place] = first
        return self._first_at.get(place)

    def _last_sequence(self, segment: Segment) -> int:
        if segment not in self._last:
            self._last[segment] = last_sequence(segment)
        return self._last[segment]

    def _remove(self, starts: LogStartOffsets, step: Removal) -> LogStartOffsets:
        segment = step.part.segment
        tasks = tasks_in(segment) if segment.name == ASSIGNMENTS else []
        with self._fence.changing():
            ids = append(self._folder, starts.ids, tasks)
            failpoint.reach("ids-kept")
            moved = moved_behind(starts, step, ids)
            write_start_offsets(self._folder, moved)
            failpoint.reach("start-moved")
            self._finish(moved)
        failpoint.reach("segment-removed")
        self._last.pop(segment, None)
        self._first_at.pop((segment.name, segment.start), None)
        log.info(
            "removed",
            f"{segment.path.name} is gone, its lines are from {step.part.first_at:%F %R} to {step.part.last_at:%F %R}",
            bytes=step.part.disk_bytes,
        )
        return moved

    def _trajectory_bytes(self, segment: Segment) -> int:
        """Return the bytes of those that its lines refer to."""
        try:
            return sum(size_of(path_of(self._folder, sha256)) for sha256 in self._sums_in(segment))
        except OSError as error:
            raise explain(error, self._folder) from error

    def _sums_in(self, segment: Segment) -> list[str]:
        return trajectories_in(segment) if segment.name == INTERACTIONS else []

    def _finish(self, starts: LogStartOffsets) -> None:
        """Remove all that lies before the beginning of its log: of this removal, or of one that a crash cut short."""
        try:
            drop_old(self._folder, starts.ids)
            for segment in sealed_segments(self._folder, INTERACTIONS):
                if segment.end <= starts.begin(INTERACTIONS):
                    remove(self._folder, self._sums_in(segment))
        except OSError as error:
            raise explain(error, self._folder) from error
        unlink_before(self._folder, {name: starts.begin(name) for name in TASK_LOGS})


def moved_behind(starts: LogStartOffsets, step: Removal, ids: int) -> LogStartOffsets:
    """Return where the logs begin once this segment is gone."""
    segment = step.part.segment
    return LogStartOffsets(starts.begins | {segment.name: segment.end}, step.sequence, ids)


def sizes(folder: Path) -> dict[str, int]:
    """Bytes on disk by log, the active file and everything sealed."""
    return {
        name: size_of(active_path(folder, name)) + sum(size_of(one.path) for one in sealed_segments(folder, name))
        for name in TASK_LOGS
    }


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # sealed, or compressed, just now
        return 0
