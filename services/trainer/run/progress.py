"""The events of a run: its stages, and the figures of each step. The figures are also the report's curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from time import monotonic
from typing import Any

from transformers import TrainerCallback

from ratchet.models.cpu_threads import CpuThreads
from ratchet.service.errors import TrainingRefused
from services.trainer.algorithms.plan import Plan


class RanAway(TrainingRefused):
    """The policy did, at the step that is named."""


@dataclass(frozen=True, slots=True)
class Stops:
    """Limits in nats a token: see the hyperparameters of the same names."""

    forgetting: float
    entropy: float
    divergence: float

    def reason(self, figures: Mapping[str, float], first: Mapping[str, float]) -> str | None:
        """Say why a run ends with the step of these figures, or None. `first`: those of its first step."""
        if not all(math.isfinite(figures.get(name, 0.0)) for name in ("loss", "grad_norm")):
            return f"the loss became {figures.get('loss')}, the gradient {figures.get('grad_norm')}"
        if (change := figures.get("good_log_ratio", 0.0)) < -self.forgetting:
            return (
                f"the answers it was to learn have become unlikelier by {-change:.2f} nats a token "
                f"(stop_forgetting is {self.forgetting:g})"
            )
        risen = figures.get("entropy", 0.0) - first.get("entropy", math.inf)
        if risen > self.entropy:
            return f"the entropy has risen by {risen:.2f} nats a token (stop_entropy is {self.entropy:g})"
        if (divergence := figures.get("divergence", 0.0)) > self.divergence:
            return (
                f"the policy is {divergence:.1f} nats a token from the one that wrote the log "
                f"(stop_divergence is {self.divergence:g})"
            )
        return None


class RunAwayStops(TrainerCallback):  # type: ignore[misc]
    """Ends the run in all processes: what it looks at is the whole step's in each."""

    def __init__(self, stops: Stops) -> None:
        self._stops = stops

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **given: Any) -> None:
        """Raises RanAway."""
        if "loss" not in logs:
            return
        first = next((entry for entry in state.log_history if "loss" in entry), logs)
        if (reason := self._stops.reason(logs, first)) is not None:
            raise RanAway(
                f"stopped at step {state.global_step} of {state.max_steps}, and nothing was published: {reason}; train "
                f"with a lower learning rate or fewer passes"
            )


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
