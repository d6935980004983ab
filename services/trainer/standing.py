"""How the run in hand stands, from what its process tells: for whoever looks while it runs. Pure, bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from schemas.api.runs import RunProgress
from services.adapters.training_runs import CURVES, Point, thinned

REMEMBERED_STEPS = 5000


class RunStanding:
    """Of one attempt."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self._stage = "starting"
        self._step: int | None = None
        self._steps: int | None = None
        self.counts: dict[str, int] = {}
        self._points: dict[str, deque[Point]] = {}

    @property
    def progress(self) -> RunProgress:
        return RunProgress(stage=self._stage, step=self._step, steps=self._steps)

    def hear(self, said: Mapping[str, Any]) -> None:
        self._stage = str(said["stage"])
        self.counts |= said.get("counts", {})
        if "step" in said:
            self._step, self._steps = int(said["step"]), int(said["steps"])
            for name in CURVES:
                if name in said:
                    points = self._points.setdefault(name, deque(maxlen=REMEMBERED_STEPS))
                    points.append((float(said["step"]), float(said[name])))

    def curves(self) -> dict[str, list[Point]]:
        """Without those that are zero all along, as in the report of a finished run."""
        return {name: thinned(points) for name, points in self._points.items() if any(value for _, value in points)}
