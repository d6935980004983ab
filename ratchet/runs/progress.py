"""The state of a run: its progress while it goes, and the report it left beside its adapter.

Both hold curves of at most 300 points. The report is read leniently: a file or field that is missing, too large or of
another shape leaves out what it would have shown.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from math import fsum
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from ratchet.adapters.folder import read_file
from ratchet.adapters.limits import LARGEST_REPORT
from ratchet.adapters.manifest import TRAINING_REPORT, read_card
from ratchet.service.errors import AdapterError
from ratchet.service.telemetry import Log
from schemas.api.runs import RunProgress
from schemas.messages.base import Record
from schemas.records.adapter_card import AdapterCard
from schemas.records.registry import AdapterEntry

log = Log("trainer")

REMEMBERED_STEPS = 5000
WRITE_EVERY_S = 2.0
PACE_STEPS = 64
"""The newest steps that the pace is taken from: a machine that others use is not as fast all day."""
TOLD_AFTER_STEPS = 10
"""The step from which the time left must be right within a fifth; the value of that step is kept."""
RIDGE = 0.1
"""Weight of the prior that all cost is by work, in squares of the mean work."""


class RunProgressRecord(Record):
    """`progress.json` of a run: at most 300 points a curve, some 50 kB."""

    progress: RunProgress
    counts: dict[str, int] = Field(default_factory=dict)
    curves: dict[str, list[Point]] = Field(default_factory=dict)


def read_progress(path: Path) -> RunProgressRecord | None:
    """Return None where there is none yet, or none that can be read. Nothing but curves is lost with it."""
    try:
        return RunProgressRecord.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


class ProgressTracker:
    """Follows one attempt. `before` is the progress of the attempts before it, whose curves go on. Pure."""

    def __init__(self, before: RunProgressRecord | None = None) -> None:
        self._stage = "starting"
        self._step: int | None = None
        self._steps: int | None = None
        self._share: float | None = None
        self._pace = Pace()
        self._seconds_left: float | None = None
        self._first_step: int | None = None
        self._told: tuple[float, float] | None = None
        """The seconds left after ten steps, and when that was."""
        self._took: float | None = None
        self._counts = dict(before.counts) if before else {}
        known = before.curves if before else {}
        self._points = {name: deque(points, maxlen=REMEMBERED_STEPS) for name, points in known.items()}

    def record(self, event: Mapping[str, Any], seconds: float) -> None:
        """Take an event that was reported at `seconds` of a steady clock."""
        self._stage = str(event["stage"])
        self._share = event.get("share")
        self._counts |= event.get("counts", {})
        if "step" in event:
            step, steps = self._step, self._steps = int(event["step"]), int(event["steps"])
            self._add_points(step, event)
            done, work = event.get("work_done", step), event.get("work", steps)
            self._share = min(1.0, done / work) if work else None
            self._pace.observe(step, done, seconds)
            self._seconds_left = self._pace.seconds_left(steps - step, work - done)
            self._record_forecast(step, steps, seconds)

    @property
    def time_left_told(self) -> dict[str, float]:
        """Return the seconds left as told after ten steps, and what the rest then took.

        It is empty before the last step, and for ten steps or fewer.
        """
        if self._told is None or self._took is None:
            return {}
        return {"told_after_ten_steps_s": round(self._told[0], 3), "took_after_ten_steps_s": round(self._took, 3)}

    def _record_forecast(self, step: int, steps: int, seconds: float) -> None:
        if self._first_step is None:
            self._first_step = step
        if self._told is not None:
            if self._took is None and step == steps:
                self._took = seconds - self._told[1]
        elif self._seconds_left is not None and self._first_step + TOLD_AFTER_STEPS <= step < steps:
            self._told = self._seconds_left, seconds

    def at(self, now: datetime) -> RunProgressRecord:
        progress = RunProgress(
            stage=self._stage,
            step=self._step,
            steps=self._steps,
            share=self._share,
            seconds_left=self._seconds_left,
            at=now,
        )
        curves = {name: thin_out(points) for name, points in self._points.items() if any(value for _, value in points)}
        return RunProgressRecord(progress=progress, counts=self._counts, curves=curves)

    def _add_points(self, step: int, event: Mapping[str, Any]) -> None:
        """Add a step's points. Those of later steps, by an attempt that was cut short, go: the steps are done again."""
        for points in self._points.values():
            while points and points[-1][0] > step:
                points.pop()
        for name in CURVES:
            value: Any = event.get(name)
            if is_number(value):
                points = self._points.setdefault(name, deque(maxlen=REMEMBERED_STEPS))
                if points and points[-1][0] == step:
                    points.pop()
                points.append((float(step), float(value)))


class Pace:
    """Cost of a step: so much each, and so much by its work (tokens through the model). Pure.

    Fitted to the newest steps of one attempt, for some have ten times the tokens of others. The first step is left out
    once there are others: it warms up.
    """

    def __init__(self) -> None:
        self._last: tuple[int, float, float] | None = None
        self._steps: deque[tuple[float, float]] = deque(maxlen=PACE_STEPS)
        """Work and seconds of each."""

    def observe(self, step: int, done: float, seconds: float) -> None:
        """Take how many steps are whole at that moment. `done` is the work so far, with parts of the next step."""
        if self._last is None or step < self._last[0]:
            self._last = step, done, seconds
            self._steps.clear()
        elif (count := step - self._last[0]) > 0:
            one = (done - self._last[1]) / count, (seconds - self._last[2]) / count
            self._steps.extend([one] * min(count, PACE_STEPS))
            self._last = step, done, seconds

    def seconds_left(self, steps: int, work: float) -> float | None:
        """Return None before a step is whole."""
        known = list(self._steps)[1:] if 1 < len(self._steps) < PACE_STEPS else list(self._steps)
        if not known:
            return None
        each, by_work = _fit_cost(known)
        return max(0.0, each * steps + by_work * work)


def _fit_cost(known: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Fit seconds = each + by_work · work, neither below 0, by least squares.

    A prior draws the fit towards "all by work" where few steps are known, or all have like work.
    """
    mean_work, mean_seconds = fmean(work for work, _ in known), fmean(seconds for _, seconds in known)
    if not mean_work:
        return mean_seconds, 0.0
    all_by_work = mean_seconds / mean_work
    ridge = RIDGE * mean_work**2
    spread = fsum((work - mean_work) ** 2 for work, _ in known)
    slope = fsum((work - mean_work) * (seconds - mean_seconds) for work, seconds in known)
    by_work = (slope + all_by_work * ridge) / (spread + ridge)
    by_work = min(max(0.0, by_work), all_by_work)
    return mean_seconds - by_work * mean_work, by_work


class ProgressFile:
    """Writes the progress of a run to its file at each new stage, and every few seconds.

    It is not synced: a kill leaves out of the curves what was reported since the last write. (The report of a trained
    adapter has every step.) A disk that does not take it stops no training: that is logged once.
    """

    def __init__(self, path: Path, now: Callable[[], datetime], *, seconds: Callable[[], float] = monotonic) -> None:
        self._path = path
        self._now = now
        self._seconds = seconds
        self._tracker = ProgressTracker(read_progress(path))
        self._stage: str | None = None
        self._written_at = float("-inf")
        self._failed = False

    def record(self, event: Mapping[str, Any]) -> None:
        seconds = self._seconds()
        self._tracker.record(event, seconds)
        if event["stage"] != self._stage or seconds - self._written_at >= WRITE_EVERY_S:
            self._stage, self._written_at = event["stage"], seconds
            self.write()

    def write(self) -> None:
        """Write the file whole: readers see the old progress or the new."""
        temporary = self._path.with_name(self._path.name + ".tmp")
        try:
            temporary.write_text(self._tracker.at(self._now()).model_dump_json())
            temporary.replace(self._path)
        except OSError as error:
            if not self._failed:
                log.warning("no-progress", f"{self._path} can't be written, the run goes on unseen: {error}")
            self._failed = True


MOST_STEPS = 3000
"""Steps in a report that is written. Of a longer run it has so many, evenly chosen."""
MOST_COUNTS = 64
LONGEST_NAME = 100
Point = tuple[float, float]
T = TypeVar("T")
LARGEST = 1e300
"""The largest value that is drawn; infinity is above it."""
CURVES = (
    *("loss", "entropy", "effective_share", "clip_fraction", "kl", "reward", "divergence", "good_log_ratio"),
    *("demonstration_loss", "held_out_loss", "held_out_preference"),
)


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """`curves`: name → (step, value), without those that are zero all along. `counts`: the data used, and dropped."""

    version: str
    card: AdapterCard | None
    curves: dict[str, list[Point]]
    counts: dict[str, float]


def training_reports(adapters_dir: Path, entries: Iterable[AdapterEntry]) -> list[TrainingReport]:
    """Return the reports of the versions whose folders are still there."""
    return [training_report(adapters_dir / entry.folder, entry.version) for entry in entries if entry.folder]


def training_report(folder: Path, version: str) -> TrainingReport:
    report = _read(folder)
    steps = report.get("steps")
    rows = [row for row in steps if isinstance(row, dict)] if isinstance(steps, list) else []
    curves = {name: thin_out(_curve(rows, name)) for name in CURVES}
    counts = _counts(report)
    return TrainingReport(
        version,
        _card(folder),
        {name: points for name, points in curves.items() if any(value for _, value in points)},
        {str(name)[:LONGEST_NAME]: value for name, value in islice(counts.items(), MOST_COUNTS) if is_number(value)},
    )


def _counts(report: dict[str, Any]) -> dict[Any, Any]:
    data = report.get("data")
    counts = data.get("counts") if isinstance(data, dict) else report.get("counts")
    return counts if isinstance(counts, dict) else {}


def _read(folder: Path) -> dict[str, Any]:
    try:
        report = json.loads(read_file(folder, TRAINING_REPORT, LARGEST_REPORT))
    except (AdapterError, OSError, ValueError, RecursionError):
        return {}
    return report if isinstance(report, dict) else {}


def _card(folder: Path) -> AdapterCard | None:
    try:
        return read_card(folder)
    except AdapterError:
        return None


def _curve(rows: list[dict[str, Any]], name: str) -> list[Point]:
    numbered: Iterable[tuple[Any, Any]] = ((row.get("step", index), row.get(name)) for index, row in enumerate(rows, 1))
    return [(float(step), float(value)) for step, value in numbered if is_number(step) and is_number(value)]


def thin_out(points: Sequence[T], most: int = 300) -> list[T]:
    """Return at most so many points, evenly chosen, always with the last one."""
    if len(points) <= most:
        return list(points)
    return [points[round(index * (len(points) - 1) / (most - 1))] for index in range(most)]


def is_number(value: Any) -> bool:
    """Return whether the value can be drawn."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST
