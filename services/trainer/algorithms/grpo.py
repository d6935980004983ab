"""Offline GRPO: group-relative advantages on logged answers, the ratio taken to the logged log-probabilities.

Losses as TRL 1.16 computes them: dapo (Yu et al. 2025), dr_grpo (Liu et al. 2025), gspo (Zheng et al. 2025: the ratio
of whole sequences), cispo (MiniMax 2025: the ratio is capped, not clipped).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from services.trainer.algorithms.advantages import group_advantages, tempered
from services.trainer.algorithms.algorithm import TrainerInputs
from services.trainer.algorithms.hyperparameters import GrpoHyperparameters
from services.trainer.algorithms.logged_trainer import LoggedTrainer
from services.trainer.algorithms.plan import TrainingTargets


class Grpo:
    hyperparameters = GrpoHyperparameters

    def targets(self, groups: Sequence[Sequence[float]], hyperparameters: GrpoHyperparameters) -> TrainingTargets:
        plain = (group_advantages(scores, hyperparameters.scale) for scores in groups)
        weights = [weight for group in plain for weight in tempered(group, hyperparameters.negative_weight)]
        starts = [sum(map(len, groups[:index])) for index in range(len(groups))]
        used = (tuple(range(start, start + len(scores))) for start, scores in zip(starts, groups, strict=True))
        live = (hyperparameters.beta > 0 or weight != 0.0 for weight in weights)
        return TrainingTargets(tuple(used), tuple(weights), tuple(live))

    def trainer(self, inputs: TrainerInputs, hyperparameters: GrpoHyperparameters) -> LoggedTrainer:
        targets = self.targets(inputs.scores, hyperparameters)
        trainer = LoggedTrainer(inputs, hyperparameters, targets, **loss_arguments(hyperparameters))
        if hyperparameters.kl_to == "base" and "ref" in trainer.model.peft_config:
            trainer.model.delete_adapter("ref")
        return trainer


def loss_arguments(hyperparameters: GrpoHyperparameters) -> dict[str, Any]:
    """TRL's names. Its `delta` and, for cispo, `epsilon_high` are the largest weight a token can have."""
    is_cispo = hyperparameters.loss == "cispo"
    return {
        "loss_type": "grpo" if hyperparameters.loss == "gspo" else hyperparameters.loss,
        "importance_sampling_level": "sequence" if hyperparameters.loss == "gspo" else "token",
        "epsilon": hyperparameters.clip_low,
        "epsilon_high": hyperparameters.importance_cap if is_cispo else hyperparameters.clip_high,
        "delta": None if is_cispo else hyperparameters.importance_cap,
        "beta": hyperparameters.beta,
    }
