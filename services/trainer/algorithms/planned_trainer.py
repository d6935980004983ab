"""A mixin that makes one of TRL's trainers go through a plan once, whatever its loss.

A row of its data set is a whole step, so a step may have as many micro-batches as the lengths of its answers ask for
(Transformers' gradient accumulation takes equally many for all). What each step did to the policy is measured the same
way for all losses, against the log-probabilities that were logged.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from datasets import Dataset

from services.trainer.algorithms.algorithm import TrainerInputs
from services.trainer.algorithms.hyperparameters import Hyperparameters
from services.trainer.algorithms.plan import Batching, MicroBatch, Plan, Size, TrainingTargets, plan_steps
from services.trainer.algorithms.policy import save_adapter
from services.trainer.data.support import LARGEST_LOG_WEIGHT

if TYPE_CHECKING:
    from transformers import Trainer as Base
else:
    Base = object

SUMS = 9
"""Tokens, |log w|, w, w squared, w - 1 - log w; log w and number of those tokens that are to become likelier; log p and
number of the tokens of demonstrations, which are not among the others."""


class PlannedTrainer(Base):  # type: ignore[misc]
    """`plan` must be there before the trainer's own `__init__`, whose data set is `step_rows(plan)`."""

    plan: Plan
    _metrics: Any
    _micro_batch: MicroBatch
    """The one that is at work."""
    _sums: torch.Tensor

    @property
    def step_figures(self) -> Any:
        """The figures by name: what is appended there before a step's figures are logged is logged with them."""
        return self._metrics["train"]

    @abstractmethod
    def tensors(self, micro_batch: MicroBatch) -> Any:
        """Return what the trainer's own step takes."""

    @abstractmethod
    def scores_of(self, numbers: Sequence[int]) -> list[float]:
        """The scores of some items of the plan."""

    def get_train_dataloader(self) -> Any:
        """Load rows in the order of the plan; of each step each process has the row with its own micro-batches."""
        return self._get_dataloader(
            dataset=self.train_dataset,
            description="Training",
            batch_size=1,
            sampler_fn=torch.utils.data.SequentialSampler,
            is_training=True,
        )

    def training_step(self, model: Any, inputs: list[dict[str, int]], num_items_in_batch: Any = None) -> torch.Tensor:
        """Forward and backward through all of the step's micro-batches; gradients are exchanged with the last."""
        (row,) = inputs
        step = self.plan.steps[row["step"]]
        mine = step[row["process"] :: self.plan.processes]
        self._sums = torch.zeros(SUMS, dtype=torch.float64, device=self.accelerator.device)
        losses = []
        for index, micro_batch in enumerate(mine):
            self._micro_batch = micro_batch
            with nullcontext() if index == len(mine) - 1 else self.accelerator.no_sync(model):
                losses.append(super().training_step(model, self.tensors(micro_batch), None))
            self.callback_handler.on_substep_end(self.args, self.state, self.control)
        self._tell(step)
        return torch.stack(losses).sum()

    def mean_over_step(self, loss: torch.Tensor) -> torch.Tensor:
        """Turn a mean over the rows of the micro-batch into its part of the mean over the step's samples."""
        return loss * (self._micro_batch.rows * self.plan.processes / self._micro_batch.step_samples)

    @torch.no_grad()
    def compare(self, new: torch.Tensor, logged: torch.Tensor, mask: torch.Tensor, good: torch.Tensor) -> None:
        """Count how far the policy has come from the one that wrote the log. All are (rows, tokens), `good` (rows):
        which answers are to become likelier."""
        keep = mask.bool()
        logs = (new - logged)[keep].double().clamp(-LARGEST_LOG_WEIGHT, LARGEST_LOG_WEIGHT)
        weights, of_good = logs.exp(), (keep & good.bool()[:, None])[keep]
        parts = (logs.abs(), weights, weights * weights, weights - 1.0 - logs, logs * of_good, of_good)
        self._sums[:7] += torch.stack([torch.as_tensor(len(logs)), *(part.sum() for part in parts)]).to(self._sums)

    @torch.no_grad()
    def count_demonstrations(self, new: torch.Tensor, mask: torch.Tensor) -> None:
        """Count how likely they are; both are (rows, tokens)."""
        self._sums[7:] += torch.stack([(new * mask).sum(), mask.sum()]).to(self._sums)

    def _tell(self, step: Sequence[MicroBatch]) -> None:
        """The figures of the whole step, over all processes, for the report and for what stops a run."""
        sums = self.accelerator.reduce(self._sums).tolist()
        tokens, gap, weights, squares, divergence, good, of_good, shown, of_shown = sums
        figures = self._metrics["train"]
        scores = self.scores_of([number for micro_batch in step for number in micro_batch.samples])
        if scores:
            figures["reward"].append(sum(scores) / len(scores))
        if tokens:
            figures["gap"].append(gap / tokens)
            figures["effective_share"].append(weights * weights / squares / tokens)
            figures["mean_weight"].append(weights / tokens)
            figures["divergence"].append(divergence / tokens)
        if of_good:
            figures["good_log_ratio"].append(good / of_good)
        if of_shown:
            figures["demonstration_loss"].append(-shown / of_shown)

    @property
    def trained_policy(self) -> Any:
        """The PeftModel itself, out of whatever the processes wrap it in."""
        return self.accelerator.unwrap_model(self.model)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        if self.args.should_save:
            save_adapter(self.trained_policy, Path(output_dir or self.args.output_dir))

    def create_model_card(self, *given: Any, **options: Any) -> None:
        """The adapter card says more."""


def plan_of(
    inputs: TrainerInputs,
    hyperparameters: Hyperparameters,
    targets: TrainingTargets,
    sizes: Sequence[Size],
    rows: int = 1,
    rollouts: Sequence[Sequence[int]] | None = None,
    counted: Sequence[int] | None = None,
) -> Plan:
    """`rows`: how many of the model's rows one item of the plan takes; the last two as for `plan_steps`."""
    how = Batching(
        epochs=hyperparameters.passes(sum(map(len, targets.used))),
        batch=hyperparameters.batch,
        tokens=hyperparameters.tokens_at_once(on_gpu=inputs.on_gpu) // rows,
        seed=inputs.seed,
        processes=inputs.processes,
    )
    return plan_steps(targets, sizes, how, rollouts, counted)


def step_rows(plan: Plan) -> Dataset:
    """Each step once for every process, in the order in which Accelerate deals rows out."""
    rows = [{"step": step, "process": process} for step in range(len(plan.steps)) for process in range(plan.processes)]
    return Dataset.from_list(rows)
