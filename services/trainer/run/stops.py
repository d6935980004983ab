"""Ends of a run before its last step: the policy runs away, or held-out texts say that it is of no more use.

A policy that forgets the answers it is to learn, babbles, or has left the log far behind is worth no experiment, and
the steps just before it was found out are no better founded: what to do is train again, with a lower learning rate or
fewer passes. The limits are wide: a run that learns well comes nowhere near them.

The loss of demonstrations that are not taught is looked at before the first step and every some steps. The best step so
far keeps its checkpoint until there is a better one; a resumed run knows it by the history in its checkpoint.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peft import load_peft_weights, set_peft_model_state_dict
from transformers import TrainerCallback

from ratchet.service.errors import TrainingRefused
from services.trainer.algorithms.policy import ADAPTER, token_logps
from services.trainer.data.samples import TrainingSample
from services.trainer.run.checkpoints import PREFIX
from services.trainer.run.progress import Emit


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


FIGURE = "held_out_loss"
LOOKS = 16
"""Looks at the held-out loss in a run of all its steps, about."""
PATIENCE = 4
"""Looks in a row without a better one, after which a run ends."""


@dataclass(frozen=True, slots=True)
class HeldOutResult:
    """Held-out loss, in nats a token, before the first step and at the best. `ended`: the last step that was done."""

    texts: int
    before: float
    best: float
    best_step: int
    ended: int

    @property
    def is_better(self) -> bool:
        return self.best < self.before


def held_out_loss(policy: Any, samples: Sequence[TrainingSample], temperature: float) -> float:
    """Return the loss of these texts in nats a token; of conversations the tokens that were sampled count.

    It is minus the logarithm of the mean of the texts' likelihoods, each by its own number of tokens. So one text that
    the policy is surely wrong about weighs no more than another: a mean of losses would turn on the few such texts.
    """
    likelihoods = []
    for sample, logps in zip(samples, token_logps(policy, samples, temperature), strict=True):
        counted = [float(value) for value, kept in zip(logps, sample.sampled or [1] * len(logps), strict=True) if kept]
        likelihoods.append(math.exp(math.fsum(counted) / max(1, len(counted))))
    return -math.log(max(sys.float_info.min, math.fsum(likelihoods) / max(1, len(likelihoods))))


class HeldOutLooks(TrainerCallback):  # type: ignore[misc]
    """Looks at `loss`, which must give the same in all processes, and ends a run that no longer gains."""

    def __init__(
        self, loss: Callable[[], float], texts: int, steps: int, figures: Any, emit: Emit, *, never_before: int = 0
    ) -> None:
        """`steps` of the whole run. `figures`: where the trainer gathers those of a step, by name.

        `never_before`: the step from which on looks in vain count; a mixture is not ended before its second part.
        """
        self._loss = loss
        self._texts = texts
        self._every = max(1, round(steps / LOOKS))
        self._figures = figures
        self._emit = emit
        self._never_before = never_before
        self._seen: list[tuple[int, float]] = []

    @property
    def result(self) -> HeldOutResult:
        """Result after the training."""
        best_step, best = self._best
        return HeldOutResult(self._texts, self._seen[0][1], best, best_step, self._seen[-1][0])

    @property
    def _best(self) -> tuple[int, float]:
        """The first of the lowest."""
        return min(self._seen, key=lambda look: look[1])

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self._seen = [(entry["step"], entry[FIGURE]) for entry in state.log_history if FIGURE in entry]
        if not self._seen:
            self._seen = [(0, self._loss())]
            state.log_history.append({"step": 0, FIGURE: self._seen[0][1]})
            self._emit({"stage": "training", "step": 0, "steps": state.max_steps, FIGURE: self._seen[0][1]})
        self._protect(args, state)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> Any:
        if state.global_step % self._every and state.global_step < state.max_steps:
            return control
        found = self._loss()
        self._seen.append((state.global_step, found))
        self._figures[FIGURE].append(found)
        best_step, _ = self._best
        control.should_save |= best_step == state.global_step
        in_vain = state.global_step - max(best_step, self._never_before)
        control.should_training_stop |= in_vain >= PATIENCE * self._every
        return control

    def on_save(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self._protect(args, state)

    def _protect(self, args: Any, state: Any) -> None:
        """Keep the best checkpoint: Transformers removes older ones but that."""
        state.best_model_checkpoint = str(_checkpoint(args, self._best[0]))


def restore_best(trainer: Any, policy: Any, result: HeldOutResult) -> None:
    """The policy as it was at its best step."""
    if result.best_step != result.ended:
        weights = load_peft_weights(str(_checkpoint(trainer.args, result.best_step)), device=str(policy.device))
        set_peft_model_state_dict(policy, weights, adapter_name=ADAPTER)


def _checkpoint(args: Any, step: int) -> Path:
    return Path(args.output_dir) / f"{PREFIX}{step}"
