"""The events of a run: its stages, and the figures of each step. The figures are also the report's curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from transformers import TrainerCallback

Emit = Callable[[Mapping[str, Any]], None]

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
}
"""TRL's names, and ours."""


class StepReports(TrainerCallback):  # type: ignore[misc]
    """Reports the figures of every step."""

    def __init__(self, emit: Emit, parent_gap: float | None) -> None:
        self._emit = emit
        self._parent_gap = parent_gap

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        begun = {"step": state.global_step, "steps": state.max_steps, "parent_gap": self._parent_gap}
        self._emit({"stage": "training"} | begun)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **given: Any) -> None:
        if state.is_world_process_zero and "loss" in logs:
            self._emit(
                {"stage": "training", "steps": state.max_steps} | step_figures(logs | {"step": state.global_step})
            )


def step_figures(logged: Mapping[str, Any]) -> dict[str, float]:
    """The figures in one entry of Transformers' log history; finite numbers only."""
    named = {FIGURES[name]: value for name, value in logged.items() if name in FIGURES}
    numbers = {name: value for name, value in named.items() if isinstance(value, int | float) and math.isfinite(value)}
    return {"step": logged["step"]} | numbers


def curve(history: list[dict[str, Any]]) -> list[dict[str, float]]:
    """All steps of a run, also those before it was taken up again."""
    return [step_figures(entry) for entry in history if "loss" in entry]
