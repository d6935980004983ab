"""How far a run has come, from the events of its process: kept beside its request while it goes. Bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Any

from pydantic import Field, ValidationError

from ratchet.service.telemetry import Log
from ratchet.training_runs.report import CURVES, Point, is_number, thinned
from schemas.api.runs import RunProgress
from schemas.messages.base import Record

log = Log("trainer")

REMEMBERED_STEPS = 5000
WRITE_EVERY_S = 2.0


class RunProgressRecord(Record):
    """`progress.json` of a run: at most 300 points a curve, some 50 kB."""

    progress: RunProgress
    counts: dict[str, int] = Field(default_factory=dict)
    curves: dict[str, list[Point]] = Field(default_factory=dict)


def read_progress(path: Path) -> RunProgressRecord | None:
    """None where there is none yet, or none that can be read: nothing but curves is lost with it."""
    try:
        return RunProgressRecord.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


class ProgressTracker:
    """Follows one attempt; `before`: the progress of the attempts before it, whose curves go on. Pure."""

    def __init__(self, before: RunProgressRecord | None = None) -> None:
        self._stage = "starting"
        self._step: int | None = None
        self._steps: int | None = None
        self._began: tuple[int, float] | None = None
        self._seconds_left: float | None = None
        self._counts = dict(before.counts) if before else {}
        known = before.curves if before else {}
        self._points = {name: deque(points, maxlen=REMEMBERED_STEPS) for name, points in known.items()}

    def record(self, event: Mapping[str, Any], seconds: float) -> None:
        """`seconds` of a steady clock, when it was reported."""
        self._stage = str(event["stage"])
        self._counts |= event.get("counts", {})
        if "step" in event:
            self._step, self._steps = int(event["step"]), int(event["steps"])
            self._add_points(self._step, event)
            self._estimate(self._step, self._steps, seconds)

    def at(self, now: datetime) -> RunProgressRecord:
        progress = RunProgress(
            stage=self._stage, step=self._step, steps=self._steps, seconds_left=self._seconds_left, at=now
        )
        curves = {name: thinned(points) for name, points in self._points.items() if any(value for _, value in points)}
        return RunProgressRecord(progress=progress, counts=self._counts, curves=curves)

    def _add_points(self, step: int, event: Mapping[str, Any]) -> None:
        """Points of later steps, by an attempt that was cut short, go: those steps are done again."""
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

    def _estimate(self, step: int, steps: int, seconds: float) -> None:
        """Seconds left at the mean pace of this attempt, from its first step on."""
        if self._began is None or step <= self._began[0]:
            self._began, self._seconds_left = (step, seconds), None
        else:
            first, then = self._began
            self._seconds_left = max(0.0, (seconds - then) / (step - first) * (steps - step))


class ProgressFile:
    """Keeps the progress of a run in a file: written at each new stage, and every few seconds.

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
        """Readers see the old progress or the new."""
        temporary = self._path.with_name(self._path.name + ".tmp")
        try:
            temporary.write_text(self._tracker.at(self._now()).model_dump_json())
            temporary.replace(self._path)
        except OSError as error:
            if not self._failed:
                log.warning("no-progress", f"{self._path} can't be written, the run goes on unseen: {error}")
            self._failed = True
