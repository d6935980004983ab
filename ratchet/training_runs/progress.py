"""How far a run has come, from the events of its process: kept beside its request while it goes. Bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from math import fsum
from pathlib import Path
from statistics import fmean
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
PACE_STEPS = 64
"""So many of the newest say how fast it goes: a machine that others use is not as fast all day."""
TOLD_AFTER_STEPS = 10
"""From then on the time left is to be right within a fifth; what it was then is kept."""
RIDGE = 0.1
"""How strongly, in squares of the mean work."""


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
        """`seconds` of a steady clock, when it was reported."""
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
            self._hold_to_account(step, steps, seconds)

    @property
    def time_left_told(self) -> dict[str, float]:
        """What was told after ten steps of this attempt, and what the rest then took; empty before its last step, and
        of ten steps or fewer."""
        if self._told is None or self._took is None:
            return {}
        return {"told_after_ten_steps_s": round(self._told[0], 3), "took_after_ten_steps_s": round(self._took, 3)}

    def _hold_to_account(self, step: int, steps: int, seconds: float) -> None:
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


class Pace:
    """What a step costs: so much each, and so much by its work (tokens through the model). Pure.

    Fitted to the newest steps of one attempt, for some have ten times the tokens of others. The first step is left out
    once there are others: it warms up.
    """

    def __init__(self) -> None:
        self._last: tuple[int, float, float] | None = None
        self._steps: deque[tuple[float, float]] = deque(maxlen=PACE_STEPS)
        """Work and seconds of each."""

    def observe(self, step: int, done: float, seconds: float) -> None:
        """So many steps are whole at that moment; `done` is the work of all so far, in parts of the next step too."""
        if self._last is None or step < self._last[0]:
            self._last = step, done, seconds
            self._steps.clear()
        elif (count := step - self._last[0]) > 0:
            one = (done - self._last[1]) / count, (seconds - self._last[2]) / count
            self._steps.extend([one] * min(count, PACE_STEPS))
            self._last = step, done, seconds

    def seconds_left(self, steps: int, work: float) -> float | None:
        """None before a step is whole."""
        known = list(self._steps)[1:] if 1 < len(self._steps) < PACE_STEPS else list(self._steps)
        if not known:
            return None
        each, by_work = _fitted(known)
        return max(0.0, each * steps + by_work * work)


def _fitted(known: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """seconds = each + by_work · work, neither below 0: least squares, drawn towards all by work where few steps are
    known, or all of like work."""
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
