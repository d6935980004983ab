"""Held-out texts say whether a run is of use: it ends when they gain no more, and keeps its best step.

Demonstrations that are not taught are held out, or else groups. They are looked at before the first step and every some
steps. The best step so far keeps its checkpoint until there is a better one; a resumed run knows it by the history in
its checkpoint.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from peft import load_peft_weights, set_peft_model_state_dict
from transformers import TrainerCallback

from ratchet.grammars.masks import Grammars
from services.trainer.algorithms.algorithm import PolicyTrainer, TrainerInputs
from services.trainer.algorithms.planned_trainer import PlannedTrainer
from services.trainer.algorithms.policy import ADAPTER, token_logps
from services.trainer.data.samples import TrainingSample, rollouts_of
from services.trainer.run.checkpoints import PREFIX
from services.trainer.run.progress import Emit

Figure = Literal["held_out_loss", "held_out_preference"]
"""Loss of demonstrations, in nats a token; of groups, how much likelier better answers are: the more the better."""
LOOKS = 16
"""Looks in a run of all its steps, about."""
PATIENCE: dict[Figure, int] = {"held_out_loss": 4, "held_out_preference": 8}
"""Looks in a row without a gain, after which a run ends; a preference dips where the policy still gains."""
LEAST_GAIN: dict[Figure, float] = {"held_out_loss": 0.01, "held_out_preference": 0.0}
"""A look gains if it is better by this share of all that was gained before: a loss falls by ever smaller steps."""


@dataclass(frozen=True, slots=True)
class HeldOutResult:
    """The figure before the first step and at the best. `texts` were held out; `ended`: the last step that was done."""

    figure: Figure
    texts: int
    before: float
    best: float
    best_step: int
    ended: int

    @property
    def is_better(self) -> bool:
        return self.best_step > 0

    @property
    def no_gain(self) -> str:
        """Sentence of a run whose best step was before the first."""
        if self.figure == "held_out_preference":
            return (
                f"after {self.ended} steps the policy prefers the better of {self.texts} answers that were held out no "
                "more than before the first, so nothing was published: look whether the scorer tells good answers from "
                "bad ones, wait for more groups, or have all of them teach (--set held_out_groups=0)"
            )
        return (
            f"after {self.ended} steps {self.texts} texts that were held out are no likelier than before the first "
            f"({self.before:.3f} nats a token, then more), so nothing was published: look whether the demonstrations "
            "are right and of one form, or train with a lower learning rate"
        )


def held_out_loss(policy: Any, samples: Sequence[TrainingSample], temperature: float) -> float:
    """Return the loss of these texts in nats a token; of conversations the tokens that were sampled count.

    It is minus the logarithm of the mean of the texts' likelihoods, each by its own number of tokens. So one text that
    the policy is surely wrong about weighs no more than another: a mean of losses would turn on the few such texts.
    """
    logps = token_logps(policy, samples, temperature)
    likelihoods = [math.exp(_mean(_counted_logps(*pair))) for pair in zip(samples, logps, strict=True)]
    return -math.log(max(sys.float_info.min, _mean(likelihoods)))


def held_out_preference(
    policy: Any, samples: Sequence[TrainingSample], temperature: float, grammars: Grammars | None = None
) -> float:
    """Return how much likelier the policy finds better answers of these groups than worse ones.

    It is the covariance of score and likelihood within a group, the mean over the groups; the likelihood of an answer
    is by its number of tokens. Mean scores with importance weights say less: after some steps they turn on one answer
    of each group, and dip where the policy still gains.
    """
    logps = token_logps(policy, samples, temperature, grammars=grammars)
    found = []
    for _, rollouts in itertools.groupby(rollouts_of(samples), key=lambda rows: samples[rows[0]].group):
        group = [
            (samples[rows[0]].score, [value for row in rows for value in _counted_logps(samples[row], logps[row])])
            for rows in rollouts
        ]
        middle = _mean([score for score, _ in group])
        found.append(_mean([(score - middle) * math.exp(_mean(values)) for score, values in group]))
    return _mean(found)


def _counted_logps(sample: TrainingSample, logps: torch.Tensor) -> list[float]:
    """Return the log-probabilities of the tokens that were sampled."""
    kept = sample.sampled or [1] * len(logps)
    return [value for value, counts in zip(logps.tolist(), kept, strict=True) if counts]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / max(1, len(values))


class HeldOutLooks(TrainerCallback):  # type: ignore[misc]
    """Looks at a figure, which must be the same in all processes, and ends a run that no longer gains."""

    def __init__(
        self,
        figure: Figure,
        look: Callable[[], float],
        texts: int,
        steps: int,
        figures: Any,
        emit: Emit,
        *,
        never_before: int = 0,
    ) -> None:
        """`steps` of the whole run. `figures`: where the trainer gathers those of a step, by name.

        `never_before`: the step from which on looks in vain count; a mixture is not ended before its second part.
        """
        self._figure = figure
        self._look = look
        self._texts = texts
        self._every = max(1, round(steps / LOOKS))
        self._figures = figures
        self._emit = emit
        self._never_before = never_before
        self._seen: list[tuple[int, float]] = []

    @property
    def result(self) -> HeldOutResult:
        """Result after the training."""
        (best_step, best), _ = self._best_and_last_gain()
        return HeldOutResult(self._figure, self._texts, self._seen[0][1], best, best_step, self._seen[-1][0])

    def _best_and_last_gain(self) -> tuple[tuple[int, float], int]:
        """Return the first of the best looks, and the step of the last one that gained."""
        sign = -1 if self._figure == "held_out_preference" else 1
        best, *looks = self._seen
        first = reached = best[1]
        last = best[0]
        for step, found in looks:
            best = min(best, (step, found), key=lambda look: sign * look[1])
            if sign * (reached - found) > LEAST_GAIN[self._figure] * abs(reached - first):
                last, reached = step, found
        return best, last

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        figure = self._figure
        self._seen = [(entry["step"], entry[figure]) for entry in state.log_history if figure in entry]
        if not self._seen:
            self._seen = [(0, self._look())]
            state.log_history.append({"step": 0, figure: self._seen[0][1]})
            self._emit({"stage": "training", "step": 0, "steps": state.max_steps, figure: self._seen[0][1]})
        self._protect(args, state)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> Any:
        if state.global_step % self._every and state.global_step < state.max_steps:
            return control
        found = self._look()
        self._seen.append((state.global_step, found))
        self._figures[self._figure].append(found)
        (best_step, _), last_gain = self._best_and_last_gain()
        control.should_save |= best_step == state.global_step
        in_vain = state.global_step - max(last_gain, self._never_before)
        control.should_training_stop |= in_vain >= PATIENCE[self._figure] * self._every
        return control

    def on_save(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self._protect(args, state)

    def _protect(self, args: Any, state: Any) -> None:
        """Keep the best checkpoint: Transformers removes older ones but that."""
        state.best_model_checkpoint = str(_checkpoint(args, self.result.best_step))


def look_at_held_out(trainer: PolicyTrainer, inputs: TrainerInputs, emit: Emit) -> HeldOutLooks | None:
    """Have the trainer look at what is held out of its run, and end by it.

    Return None where nothing is held out, or the trainer follows no plan of ours.
    """
    policy, samples, temperature = inputs.policy, inputs.held_out, inputs.temperature
    if not samples or not isinstance(trainer, PlannedTrainer):
        return None

    def loss() -> float:
        return held_out_loss(policy, samples, temperature)

    def preference() -> float:
        return held_out_preference(policy, samples, temperature, inputs.grammars)

    is_shown = samples[0].demonstration is not None
    looks = HeldOutLooks(
        "held_out_loss" if is_shown else "held_out_preference",
        loss if is_shown else preference,
        len(samples),
        len(trainer.plan.steps),
        trainer.step_figures,
        emit,
        never_before=trainer.plan.second_part,
    )
    trainer.add_callback(looks)
    return looks


def restore_best(trainer: Any, policy: Any, result: HeldOutResult) -> None:
    """The policy as it was at its best step."""
    if result.best_step != result.ended:
        weights = load_peft_weights(str(_checkpoint(trainer.args, result.best_step)), device=str(policy.device))
        set_peft_model_state_dict(policy, weights, adapter_name=ADAPTER)


def _checkpoint(args: Any, step: int) -> Path:
    return Path(args.output_dir) / f"{PREFIX}{step}"
