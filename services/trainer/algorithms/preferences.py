"""TRL's KTO on logged answers: which were good and which bad, held against the parent's own view.

KTO (Ethayarajh et al. 2024, arXiv:2402.01306) takes every answer by itself as good or bad: it suits thumbs up and down,
also where a task was answered once. It does not use the logged log-probabilities: the reference is the policy training
starts from. They are measured against them all the same, as every learner is.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback
from trl import KTOConfig, KTOTrainer
from trl.trainer.kto_trainer import DataCollatorForUnpairedPreference

from ratchet.service.errors import TrainingRefused
from services.trainer.algorithms.algorithm import TrainerInputs
from services.trainer.algorithms.arguments import training_arguments
from services.trainer.algorithms.hyperparameters import KtoHyperparameters
from services.trainer.algorithms.plan import MicroBatch, TrainingTargets
from services.trainer.algorithms.planned_trainer import PlannedTrainer, plan_of, step_rows
from services.trainer.data.samples import TrainingSample


class Kto:
    hyperparameters = KtoHyperparameters

    def trainer(self, inputs: TrainerInputs, hyperparameters: KtoHyperparameters) -> LabelTrainer:
        """Raises TrainingRefused where all answers are good, or all bad."""
        return LabelTrainer(inputs, hyperparameters)


class LabelTrainer(PlannedTrainer, KTOTrainer):  # type: ignore[misc]
    """Items of the plan are answers that are good or bad. The rarer kind weighs so much more that both weigh the same.

    The baseline of KTO, a divergence over prompts and answers that do not belong together, is estimated for each
    micro-batch, as in TRL. `_rows`: the answers at work, row by row (None: masked), and which are good.
    """

    _rows: Sequence[tuple[TrainingSample | None, bool]]

    def __init__(self, inputs: TrainerInputs, hyperparameters: KtoHyperparameters) -> None:
        self.answers = [
            answer for group in inputs.groups for answer in _label_answers(group, hyperparameters.threshold)
        ]
        good = sum(is_good for _, is_good in self.answers)
        bad = len(self.answers) - good
        if not good or not bad:
            raise TrainingRefused(
                f"KTO needs good and bad answers, and has {good:,} good and {bad:,} bad ones: set another threshold"
            )
        sizes = [sample.size for sample, _ in self.answers]
        self.plan = plan_of(inputs, hyperparameters, _all_alike(len(self.answers)), sizes)
        args = KTOConfig(
            **training_arguments(inputs, hyperparameters),
            num_train_epochs=1,  # the plan holds all epochs
            per_device_train_batch_size=2,  # TRL wants more than one; the plan makes the batches
            beta=hyperparameters.beta,
            desirable_weight=max(1.0, bad / good),
            undesirable_weight=max(1.0, good / bad),
            max_length=None,
        )
        super().__init__(
            inputs.policy,
            args=args,
            data_collator=list,
            train_dataset=step_rows(self.plan),
            processing_class=inputs.tokenizer,
            callbacks=list(inputs.callbacks),
        )
        self.remove_callback(PrinterCallback)
        self.trained_policy.register_forward_hook(self._compare_with_log)
        self._collate = DataCollatorForUnpairedPreference(pad_token_id=inputs.tokenizer.pad_token_id)

    def tensors(self, micro_batch: MicroBatch) -> Any:
        answers = [self.answers[number] for number in micro_batch.samples]
        masked = micro_batch.rows - len(answers)
        self._rows = [*answers, *[(None, False)] * masked]
        samples = [sample for sample, _ in answers]
        examples = [
            {
                "prompt_ids": list(sample.prompt),
                "completion_ids": list(sample.completion),
                "KL_completion_ids": list(other.completion),
                "label": is_good,
            }
            for (sample, is_good), other in zip(answers, _of_other_tasks(samples), strict=True)
        ]
        prompt = list(self.answers[0][0].prompt)
        empty = {"prompt_ids": prompt, "completion_ids": [], "KL_completion_ids": [], "label": False}
        return self._collate([*examples, *[empty] * masked])

    def scores_of(self, numbers: Sequence[int]) -> list[float]:
        return [self.answers[number][0].score for number in numbers]

    def _compare_with_log(self, model: Any, given: Any, output: Any) -> None:
        """Count the log-probabilities that are computed for the loss; not the reference's, which need no gradient."""
        if not torch.is_grad_enabled():
            return
        new = output.log_probs.detach()
        logged, mask = torch.zeros_like(new), torch.zeros_like(new)
        for row, (sample, _) in enumerate(self._rows):
            if sample is not None:
                begin, end = len(sample.prompt) - 1, sample.length - 1
                logged[row, begin:end] = torch.tensor(sample.logprobs).to(new)
                mask[row, begin:end] = 1
        self.compare(new, logged, mask, torch.tensor([good for _, good in self._rows], device=new.device))

    def _compute_loss(self, model: Any, inputs: Any, return_outputs: bool) -> torch.Tensor:
        return self.mean_over_step(torch.as_tensor(super()._compute_loss(model, inputs, return_outputs)))

    def _prepare_dataset(self, dataset: Dataset, *_: Any) -> Dataset:
        """Return the rows as they are: TRL would tokenise text."""
        return dataset


def _label_answers(group: Sequence[TrainingSample], threshold: float | None) -> Iterator[tuple[TrainingSample, bool]]:
    """Without a threshold, an answer just as good as the mean of its group is neither good nor bad."""
    mean = statistics.fmean(sample.score for sample in group)
    for sample in group:
        if threshold is not None:
            yield sample, sample.score >= threshold
        elif sample.score != mean:
            yield sample, sample.score > mean


def _of_other_tasks(samples: Sequence[TrainingSample]) -> list[TrainingSample]:
    """Return for each the next sample of another task, or the next one where there is no other task."""
    found = []
    for index, sample in enumerate(samples):
        following = [*samples[index + 1 :], *samples[:index]] or [sample]
        found.append(next((one for one in following if one.group != sample.group), following[0]))
    return found


def _all_alike(count: int) -> TrainingTargets:
    return TrainingTargets(tuple((number,) for number in range(count)), (1.0,) * count, (True,) * count)
