"""What a run tells while it runs: stages, and the figures of each step. The figures are also the report's curve."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from transformers import TrainerCallback

Tell = Callable[[Mapping[str, Any]], None]

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
}
"""TRL's names, and ours."""


class StepReports(TrainerCallback):  # type: ignore[misc]
    """Tells the figures of every step."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **given: Any) -> None:
        if state.is_world_process_zero and "loss" in logs:
            self._tell(
                {"stage": "training", "steps": state.max_steps} | step_figures(logs | {"step": state.global_step})
            )


def step_figures(logged: Mapping[str, Any]) -> dict[str, float]:
    """Of one entry of Transformers' log history; numbers only."""
    named = {FIGURES[name]: value for name, value in logged.items() if name in FIGURES}
    numbers = {name: value for name, value in named.items() if isinstance(value, int | float)}
    return {"step": logged["step"]} | numbers


def curve(history: list[dict[str, Any]]) -> list[dict[str, float]]:
    """All steps of a run, also those before it was taken up again."""
    return [step_figures(entry) for entry in history if "loss" in entry]
