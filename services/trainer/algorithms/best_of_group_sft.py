"""Supervised fine-tuning on the best answer of each group: the control. A gain of GRPO below it is no gain.

The same loop, plan and checkpoints as GRPO; no ratio, no clipping, and nothing learned from bad answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from pydantic import Field

from ratchet.logs.best_answer import best_index
from services.trainer.algorithms.algorithm import TrainerInputs
from services.trainer.algorithms.hyperparameters import Hyperparameters
from services.trainer.algorithms.logged_trainer import LoggedTrainer, Tensors
from services.trainer.algorithms.plan import TrainingTargets


class SftHyperparameters(Hyperparameters):
    batch: int = Field(8, ge=1, description="Samples per step, about: each is the best of its group.")


class BestOfGroupSft:
    hyperparameters = SftHyperparameters

    def targets(self, groups: Sequence[Sequence[float]]) -> TrainingTargets:
        """The first of the best of each group."""
        used, weights = [], [0.0] * sum(map(len, groups))
        start = 0
        for scores in groups:
            best = start + best_index(scores)
            weights[best] = 1.0
            used.append((best,))
            start += len(scores)
        return TrainingTargets(tuple(used), tuple(weights), tuple(weight > 0 for weight in weights))

    def trainer(self, inputs: TrainerInputs, hyperparameters: SftHyperparameters) -> LoggedTrainer:
        return SupervisedTrainer(inputs, hyperparameters, self.targets(inputs.scores))


class SupervisedTrainer(LoggedTrainer):
    """Cross-entropy of the answers: the mean over the tokens of the step."""

    def _compute_loss(self, model: Any, inputs: Tensors) -> torch.Tensor:
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        logps, _, _ = self._get_per_token_logps_and_entropies(model, ids, mask, inputs["completion_ids"].size(1))
        steps = self.current_gradient_accumulation_steps
        normaliser = inputs["num_items_in_batch"] * steps / self.plan.processes
        loss = -(logps * inputs["completion_mask"]).sum() / normaliser
        self._measure(inputs)
        return torch.as_tensor(loss)
