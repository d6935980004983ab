"""The events of a run: its stages, and the figures of each step. The figures are also the report's curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import accumulate
from time import monotonic
from typing import Any

from transformers import TrainerCallback

from ratchet.models.cpu_threads import CpuThreads
from services.trainer.algorithms.plan import Plan

Emit = Callable[[Mapping[str, Any]], None]
SHARE_EVERY_S = 1.0
"""Seconds between two events that say how far a stage is."""

FIGURES = {
    "loss": "loss",
    "grad_norm": "gradient_norm",
    "learning_rate": "learning_rate",
    "reward": "reward",
    "clip_ratio/region_mean": "clip_fraction",
    "cispo_clip_ratio": "clip_fraction",
    "entropy": "entropy",
    "kl": "kl",
    "gap": "gap",
    "effective_share": "effective_share",
    "mean_weight": "mean_weight",
    "divergence": "divergence",
    "good_log_ratio": "good_log_ratio",
    "demonstration_loss": "demonstration_loss",
    "held_out_loss": "held_out_loss",
    "held_out_preference": "held_out_preference",
}
"""TRL's name → our name."""


class ShareReports:
    """Reports now and then how far a stage is."""

    def __init__(self, emit: Emit, seconds: Callable[[], float] = monotonic) -> None:
        self._emit = emit
        self._seconds = seconds
        self._said_at = float("-inf")

    def __call__(self, event: Mapping[str, Any]) -> None:
        if self._seconds() - self._said_at >= SHARE_EVERY_S:
            self._said_at = self._seconds()
            self._emit(event)


class StepReports(TrainerCallback):  # type: ignore[misc]
    """Reports the figures of every step, and how much of the work is done, in tokens through the model."""

    def __init__(self, emit: Emit, parent_gap: float | None) -> None:
        self._emit = emit
        self._emit_share = ShareReports(emit)
        self._parent_gap = parent_gap
        self._plan: Plan | None = None
        self._done = [0]
        """Tokens through the model after each step."""
        self._parts = 0
        """Micro-batches of the present step that are done."""

    def follow(self, plan: Plan | None) -> None:
        """Take the plan before the training. Without one every step counts as the same work."""
        self._plan = plan
        steps = plan.steps if plan else ()
        self._done = list(accumulate((sum(part.padded for part in step) for step in steps), initial=0))

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self._emit(self._at(state) | {"parent_gap": self._parent_gap})

    def on_substep_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self._parts += 1
        self._emit_share(self._at(state) | {"share": None})

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **given: Any) -> None:
        self._parts = 0
        if state.is_world_process_zero and "loss" in logs:
            self._emit(self._at(state) | step_figures(logs | {"step": state.global_step}))

    def _at(self, state: Any) -> dict[str, Any]:
        standing = {"stage": "training", "step": state.global_step, "steps": state.max_steps}
        if self._plan is None:
            return standing
        begun = self._plan.steps[state.global_step : state.global_step + 1]
        parts = (part.padded for step in begun for part in step[: self._parts * self._plan.processes])
        return standing | {"work_done": self._done[state.global_step] + sum(parts), "work": self._done[-1]}


def step_figures(logged: Mapping[str, Any]) -> dict[str, float]:
    """The figures in one entry of Transformers' log history; finite numbers only."""
    named = {FIGURES[name]: value for name, value in logged.items() if name in FIGURES}
    numbers = {name: value for name, value in named.items() if isinstance(value, int | float) and math.isfinite(value)}
    return {"step": logged["step"]} | numbers


def curve(history: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Return all steps of a run, also those before it was resumed."""
    return [step_figures(entry) for entry in history if "loss" in entry]


class FreeThreads(TrainerCallback):  # type: ignore[misc]
    """Sets torch's threads before each step by the cores that other processes leave free.

    One thread that waits for its core holds up all others.
    """

    def __init__(self, threads: CpuThreads) -> None:
        self._threads = threads

    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self._threads.look()
