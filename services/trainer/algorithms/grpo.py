"""Offline GRPO: group-relative advantages on logged answers, the ratio taken to the logged log-probabilities.

Losses as TRL 1.16 computes them: dapo (Yu et al. 2025), dr_grpo (Liu et al. 2025), gspo (Zheng et al. 2025: the ratio
of whole sequences, by the geometric mean of their tokens'), cispo (MiniMax 2025: the ratio is capped, not clipped),
vespo (arXiv:2602.10693: answers are weighted by a smooth function of the ratio of the whole sequence, which is the
product over its tokens: for long answers rounding alone moves it). With `off_policy_mask`, the mask of DeepSeek-V3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ratchet.service.errors import TrainingRefused
from services.trainer.algorithms.advantages import Scale, advantages_among, temper
from services.trainer.algorithms.algorithm import TrainerInputs
from services.trainer.algorithms.hyperparameters import GrpoHyperparameters, Loss, MaskedGrpoHyperparameters
from services.trainer.algorithms.logged_trainer import LoggedTrainer
from services.trainer.algorithms.plan import TrainingTargets

WHOLE_ANSWER_LOSSES: tuple[Loss, ...] = ("gspo", "vespo")


class Grpo:
    hyperparameters: type[GrpoHyperparameters] = GrpoHyperparameters

    def trainer(self, inputs: TrainerInputs, hyperparameters: GrpoHyperparameters) -> LoggedTrainer:
        """Raises TrainingRefused where the loss takes whole answers, and there are rollouts in pieces."""
        check_loss(hyperparameters.loss, inputs.rollouts)
        targets = advantage_targets(
            inputs.scores,
            hyperparameters.scale,
            hyperparameters.negative_weight,
            inputs.peers(hyperparameters.baseline),
            all_live=hyperparameters.beta > 0,
        )
        trainer = LoggedTrainer(inputs, hyperparameters, targets, **loss_arguments(hyperparameters))
        if hyperparameters.kl_to == "base" and "ref" in trainer.model.peft_config:
            trainer.model.delete_adapter("ref")
        return trainer


class MaskedGrpo(Grpo):
    hyperparameters = MaskedGrpoHyperparameters


def check_loss(loss: Loss, rollouts: Sequence[Sequence[int]]) -> None:
    broken = sum(len(rows) > 1 for rows in rollouts)
    if broken and loss in WHOLE_ANSWER_LOSSES:
        raise TrainingRefused(
            f"{loss} weighs a whole answer by one ratio, and {broken:,} of the {len(rollouts):,} rollouts have several "
            "segments: take dapo, dr_grpo or cispo"
        )


def advantage_targets(
    groups: Sequence[Sequence[float]],
    scale: Scale,
    negative_weight: float,
    peers: Sequence[Sequence[Sequence[int]]] | None = None,
    *,
    all_live: bool = False,
) -> TrainingTargets:
    """Every sample with its advantage over those of its group that it is compared with, by `peers`: all, if absent.

    `all_live`: also those without one teach something.
    """
    together = peers or [[range(len(scores))] for scores in groups]
    plain = (advantages_among(scores, sets, scale) for scores, sets in zip(groups, together, strict=True))
    weights = [weight for group in plain for weight in temper(group, negative_weight)]
    numbers = iter(range(len(weights)))
    used = (tuple(next(numbers) for _ in scores) for scores in groups)
    return TrainingTargets(tuple(used), tuple(weights), tuple(all_live or weight != 0.0 for weight in weights))


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
        "off_policy_mask_threshold": hyperparameters.off_policy_mask,
        "cast_lm_head_to_fp32": hyperparameters.cast_lm_head_to_fp32,
    }
