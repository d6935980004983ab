"""An algorithm as a package of its own would bring it: SLiC (hinge) on the best and the worst answer, by TRL."""

from __future__ import annotations

from typing import Any

from datasets import Dataset
from pydantic import Field
from trl import DPOConfig, DPOTrainer

from services.trainer.algorithms.algorithm import TrainerInputs
from services.trainer.algorithms.arguments import training_arguments
from services.trainer.algorithms.hyperparameters import Hyperparameters
from services.trainer.data.samples import TrainingSample


class PairHyperparameters(Hyperparameters):
    beta: float = Field(0.1, gt=0, description="How dear it is to leave the parent.")


class HingePairs:
    hyperparameters = PairHyperparameters

    def trainer(self, inputs: TrainerInputs, hyperparameters: PairHyperparameters) -> DPOTrainer:
        pairs = [_pair(group) for group in inputs.groups]
        args = DPOConfig(
            **training_arguments(inputs, hyperparameters),
            loss_type="hinge",
            beta=hyperparameters.beta,
            max_length=None,
            num_train_epochs=hyperparameters.passes(len(pairs)),
            per_device_train_batch_size=hyperparameters.batch,
        )
        return LoggedPairs(
            inputs.policy,
            args=args,
            train_dataset=Dataset.from_list(pairs),
            processing_class=inputs.tokenizer,
            callbacks=list(inputs.callbacks),
        )


class LoggedPairs(DPOTrainer):  # type: ignore[misc]
    """Takes the tokens that were logged, where TRL would make them from text."""

    def _prepare_dataset(self, dataset: Dataset, *_: Any) -> Dataset:
        return dataset


def _pair(group: list[TrainingSample]) -> dict[str, list[int]]:
    def score(sample: TrainingSample) -> float:
        return sample.score

    best, worst = max(group, key=score), min(group, key=score)
    return {
        "prompt_ids": list(best.prompt),
        "chosen_ids": list(best.completion),
        "rejected_ids": list(worst.completion),
    }
