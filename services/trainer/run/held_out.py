"""Says while a training runs whether it is of use, ends it when it no longer is, and keeps its best step.

What is looked at is the loss of demonstrations that are not taught, under the policy as it is, before the first step
and every some steps. The best step so far has a checkpoint, which lasts until there is a better one; a run that is
taken up again knows it by the history in its checkpoint.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peft import load_peft_weights, set_peft_model_state_dict
from transformers import TrainerCallback

from services.trainer.algorithms.policy import ADAPTER, token_logps
from services.trainer.data.samples import TrainingSample
from services.trainer.run.checkpoints import PREFIX
from services.trainer.run.progress import Emit

FIGURE = "held_out_loss"
LOOKS = 16
"""So many in a run of all its steps, about."""
PATIENCE = 4
"""Looks in a row without a better one, after which a run ends."""


@dataclass(frozen=True, slots=True)
class HeldOutResult:
    """Nats a token before the first step and at the best one; `ended` is the last step that was done."""

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
    """Looks by `loss`, which must give the same in all processes."""

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
        """After the training."""
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
        """Transformers removes older checkpoints, but not this one."""
        state.best_model_checkpoint = str(_checkpoint(args, self._best[0]))


def restore_best(trainer: Any, policy: Any, result: HeldOutResult) -> None:
    """The policy as it was at its best step."""
    if result.best_step != result.ended:
        weights = load_peft_weights(str(_checkpoint(trainer.args, result.best_step)), device=str(policy.device))
        set_peft_model_state_dict(policy, weights, adapter_name=ADAPTER)


def _checkpoint(args: Any, step: int) -> Path:
    return Path(args.output_dir) / f"{PREFIX}{step}"
