"""Supervised fine-tuning on logged answers: no ratio, no clipping, and nothing is pushed down.

On the best answer of each group, the control: a gain of GRPO below it is no gain. Or on every answer that is better
than its group's mean, by how much it is better (advantage-weighted regression: Peng et al. 2019, arXiv:1910.00177, with
the advantage itself as the weight). The same loop, plan and checkpoints as GRPO.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from pydantic import Field

from ratchet.logs.best_answer import best_index
from services.trainer.algorithms.advantages import Scale
from services.trainer.algorithms.algorithm import TrainerInputs
from services.trainer.algorithms.grpo import advantage_targets
from services.trainer.algorithms.hyperparameters import WithBaseline, WithDemonstrations
from services.trainer.algorithms.logged_trainer import LoggedTrainer, Tensors
from services.trainer.algorithms.plan import TrainingTargets


class SftHyperparameters(WithDemonstrations):
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


class WeightedSftHyperparameters(WithBaseline):
    scale: Scale = Field(
        "none", description="Advantages as they are (none), or over the deviation of their group (group)."
    )


class WeightedSft:
    hyperparameters = WeightedSftHyperparameters

    def trainer(self, inputs: TrainerInputs, hyperparameters: WeightedSftHyperparameters) -> LoggedTrainer:
        peers = inputs.peers(hyperparameters.baseline)
        targets = advantage_targets(inputs.scores, hyperparameters.scale, 0.0, peers)
        return SupervisedTrainer(inputs, hyperparameters, targets)


class SupervisedTrainer(LoggedTrainer):
    """Cross-entropy of the answers, each token weighted as its answer."""

    def _compute_loss(self, model: Any, inputs: Tensors) -> torch.Tensor:
        return self._supervised_loss(model, inputs)
