"""TRL's GRPOTrainer on completions that were logged, not generated: the loss, the loop, the checkpoints are TRL's.

One method is replaced: where TRL would generate and score, the samples of the plan's next micro-batch are laid out as
tensors, with the logged log-probabilities as those of the old policy, so that the ratio is new over *logged*. (TRL's
own way for that, a `rollout_func`, ignores them without vLLM: the ratio is then identically 1.) Both names are TRL's
private matter: the version is pinned, and tests hold its losses against formulas written by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import use_adapter

from ratchet.service.errors import TrainingError
from ratchet.service.telemetry import Log
from services.trainer.algorithms.algorithm import TrainerInputs
from services.trainer.algorithms.arguments import training_arguments
from services.trainer.algorithms.hyperparameters import Hyperparameters
from services.trainer.algorithms.plan import Batching, MicroBatch, Plan, TrainingTargets, plan_steps
from services.trainer.algorithms.policy import save_adapter
from services.trainer.algorithms.shared_prompts import is_cheaper, share_prompts

PER_TOKEN_LOSSES = ("dapo", "cispo")
"""Losses that TRL divides by the tokens of the step; the others it averages over the rows of a micro-batch."""

SHARING_TRIAL = 16
SHARING_TOLERANCE, SHARING_TOLERANCE_16 = 1e-3, 0.1
"""Largest difference of a log-probability, in nats, that the order of operations explains; in float32, in bfloat16."""

Tensors = dict[str, torch.Tensor]

log = Log("trainer")


class LoggedTrainer(GRPOTrainer):  # type: ignore[misc]
    """Goes through its plan once. `loss`: GRPOConfig's arguments that choose one."""

    def __init__(
        self, inputs: TrainerInputs, hyperparameters: Hyperparameters, targets: TrainingTargets, **loss: Any
    ) -> None:
        self.samples = inputs.samples
        self.targets = targets
        self.plan = _plan(inputs, hyperparameters, targets)
        args = GRPOConfig(
            **training_arguments(inputs, hyperparameters),
            num_train_epochs=1,  # the plan holds all epochs
            per_device_train_batch_size=2,  # TRL wants num_generations to divide it; the plan makes the batches
            num_generations=2,
            steps_per_generation=1,
            gradient_accumulation_steps=self.plan.accumulation,
            max_completion_length=max(len(sample.completion) for sample in inputs.samples),
            temperature=inputs.temperature,
            shuffle_dataset=False,
            disable_dropout=True,
            **loss,
        )
        super().__init__(
            inputs.policy,
            scored_already,
            args=args,
            train_dataset=Dataset.from_dict({"micro_batch": list(range(len(self.plan.micro_batches)))}),
            processing_class=inputs.tokenizer,
            callbacks=list(inputs.callbacks),
        )
        self.remove_callback(PrinterCallback)
        self._seen_logps: torch.Tensor | None = None
        config = self.trained_policy.config.get_text_config()
        self._parameters = int(self.trained_policy.num_parameters())
        self._width = int(config.hidden_size * config.num_hidden_layers)
        self._mask_dtype = torch.bfloat16 if args.bf16 else torch.float32
        self._shares_prompts = self._can_share_prompts()

    def get_train_dataloader(self) -> Any:
        """One row a time: a row of the data set is a whole micro-batch of the plan."""
        return self._get_dataloader(
            dataset=self.train_dataset,
            description="Training",
            batch_size=1,
            sampler_fn=torch.utils.data.SequentialSampler,
            is_training=True,
        )

    def _generate_and_score_completions(self, inputs: list[dict[str, int]]) -> Tensors:
        (row,) = inputs
        micro_batch = self.plan.micro_batches[row["micro_batch"]]
        tensors = self.layout(micro_batch.samples, micro_batch.rows)
        steps = self.current_gradient_accumulation_steps
        tensors["num_items_in_batch"] = torch.tensor(
            micro_batch.step_tokens / steps, device=self.accelerator.device, dtype=torch.float32
        )
        tensors["loss_share"] = torch.tensor(self._loss_share(micro_batch, steps), device=self.accelerator.device)
        if self.beta != 0.0:
            tensors["ref_per_token_logps"] = self._reference_logps(tensors)
        self._metrics["train"]["reward"].append(self._mean_score(row["micro_batch"]))
        return tensors

    def _loss_share(self, micro_batch: MicroBatch, steps: int) -> float:
        """What TRL's loss of this micro-batch is multiplied with so that the step's is a mean over all its samples."""
        if self.loss_type in PER_TOKEN_LOSSES:
            return 1.0
        return micro_batch.rows * steps * self.plan.processes / micro_batch.step_samples

    def _mean_score(self, number: int) -> float:
        """Of the samples of the step, over all processes, that this micro-batch belongs to."""
        begin = number - number % self.plan.per_step
        step = self.plan.micro_batches[begin : begin + self.plan.per_step]
        scores = [self.samples[number].score for micro_batch in step for number in micro_batch.samples]
        return sum(scores) / len(scores) if scores else float("nan")

    def layout(self, numbers: Sequence[int], rows: int) -> Tensors:
        """Samples as TRL's loss takes them; shapes (rows, tokens), prompts padded left, completions right.

        Rows beyond the samples are masked out.
        """
        filled = [*numbers, *[0] * (rows - len(numbers))]
        samples = [self.samples[number] for number in filled]
        device, pad = self.accelerator.device, self.processing_class.pad_token_id
        prompts = [sample.prompt for sample in samples]
        completions = [sample.completion for sample in samples]
        tensors = {
            "prompt_ids": _padded(prompts, pad, torch.long, left=True),
            "prompt_mask": _padded([[1] * len(ids) for ids in prompts], 0, torch.long, left=True),
            "completion_ids": _padded(completions, pad, torch.long),
            "completion_mask": _padded([[1] * len(ids) for ids in completions], 0, torch.long),
            "old_per_token_logps": _padded([sample.logprobs for sample in samples], 0.0, torch.float32),
            "advantages": torch.tensor([self.targets.weights[number] for number in filled], dtype=torch.float32),
        }
        tensors["completion_mask"][len(numbers) :] = 0
        if tensors["old_per_token_logps"].shape != tensors["completion_ids"].shape:
            raise TrainingError("log-probabilities and tokens do not align: the log is not what the trainer expects")
        return {name: tensor.to(device) for name, tensor in tensors.items()}

    def logps(self, tensors: Tensors) -> torch.Tensor:
        """Log-probabilities of the completions' tokens under the policy as it is; (rows, tokens), no gradient."""
        ids = torch.cat([tensors["prompt_ids"], tensors["completion_ids"]], dim=1)
        mask = torch.cat([tensors["prompt_mask"], tensors["completion_mask"]], dim=1)
        with torch.no_grad():
            found, _, _ = self._get_per_token_logps_and_entropies(
                self.model, ids, mask, tensors["completion_ids"].size(1)
            )
        return torch.as_tensor(found)

    def _reference_logps(self, tensors: Tensors) -> torch.Tensor:
        """Of the parent, where TRL keeps a frozen copy of it under the name `ref`; else of the base model."""
        policy = self.trained_policy
        with use_adapter(policy, adapter_name="ref" if "ref" in policy.peft_config else None):
            return self.logps(tensors)

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int, **options: Any
    ) -> Any:
        """TRL's, or cheaper: with each prompt once, where the model takes it and it saves something."""
        found = None
        if self._shares_prompts and not options.get("compute_aux_loss"):
            found = self._with_shared_prompts(model, input_ids, attention_mask, logits_to_keep)
        if found is None:
            plain = super()._get_per_token_logps_and_entropies
            found = plain(model, input_ids, attention_mask, logits_to_keep, **options)
        self._seen_logps = found[0].detach()
        return found

    def _with_shared_prompts(self, model: Any, ids: torch.Tensor, mask: torch.Tensor, completion: int) -> Any:
        """Log-probabilities, entropies and no router loss; None where it saves nothing."""
        shared = share_prompts(ids, mask, completion, self.processing_class.pad_token_id)
        if not is_cheaper(ids.shape, shared.ids.shape, self._parameters, self._width):
            return None
        with self.accelerator.autocast():
            output = model(
                input_ids=shared.ids,
                attention_mask=shared.mask(self._mask_dtype),
                position_ids=shared.positions,
                shift_labels=shared.labels,
                fused_lm_head=True,
            )
        return shared.gather(output.log_probs), shared.gather(output.entropy), None

    @torch.no_grad()
    def _can_share_prompts(self) -> bool:
        """Tries it on one micro-batch: models with other ways to mix tokens than masked attention give other values."""
        numbers = self.plan.micro_batches[0].samples[:SHARING_TRIAL] or (0,)
        tensors = self.layout(numbers, len(numbers))
        ids = torch.cat([tensors["prompt_ids"], tensors["completion_ids"]], dim=1)
        mask = torch.cat([tensors["prompt_mask"], tensors["completion_mask"]], dim=1)
        completion = tensors["completion_ids"].size(1)
        try:
            shared = self._with_shared_prompts(self.model, ids, mask, completion)
        except (RuntimeError, TypeError, ValueError) as error:
            log.info("prompts-not-shared", f"the model does not take shared prompts: {error}")
            return False
        if shared is None:
            return True
        plain, _, _ = super()._get_per_token_logps_and_entropies(self.model, ids, mask, completion)
        gap = ((shared[0] - plain) * tensors["completion_mask"]).abs().max().item()
        tolerance = SHARING_TOLERANCE if self._mask_dtype == torch.float32 else SHARING_TOLERANCE_16
        if not gap <= tolerance:
            log.info("prompts-not-shared", f"log-probabilities with shared prompts are off by {gap:.4f}")
        return bool(gap <= tolerance)

    def _compute_loss(self, model: Any, inputs: Tensors) -> torch.Tensor:
        loss = super()._compute_loss(model, inputs) * inputs["loss_share"]
        self._measure(inputs)
        return torch.as_tensor(loss)

    @torch.no_grad()
    def _measure(self, inputs: Tensors) -> None:
        """How far the policy has come from the one that wrote the log, for the report."""
        mask = inputs["completion_mask"]
        if self._seen_logps is None or not mask.any():
            return
        difference = (self._seen_logps - inputs["old_per_token_logps"]) * mask
        weights = difference.sum(-1).double().exp()
        figures = self._metrics["train"]
        figures["gap"].append((difference.abs().sum() / mask.sum()).item())
        figures["effective_share"].append((weights.sum() ** 2 / (weights**2).sum() / len(weights)).item())
        figures["mean_weight"].append(weights.mean().item())

    @property
    def trained_policy(self) -> Any:
        """The PeftModel itself, out of whatever the processes wrap it in."""
        return self.accelerator.unwrap_model(self.model)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        if self.args.should_save:
            save_adapter(self.trained_policy, Path(output_dir or self.args.output_dir))

    def create_model_card(self, *given: Any, **options: Any) -> None:
        """The adapter card says more."""


def scored_already(*_: Any, **__: Any) -> list[float]:
    """TRL insists on a reward function. Nothing may ask it: the samples carry the scores of the fleet's scorer."""
    raise TrainingError("TRL asked for rewards of logged samples: its version is not the one the trainer was made for")


def _plan(inputs: TrainerInputs, hyperparameters: Hyperparameters, targets: TrainingTargets) -> Plan:
    longest = max(sample.length for sample in inputs.samples)
    how = Batching(
        epochs=hyperparameters.passes(sum(map(len, targets.used))),
        batch=hyperparameters.batch,
        micro_batch=max(1, hyperparameters.tokens_at_once(on_gpu=inputs.on_gpu) // longest),
        seed=inputs.seed,
        processes=inputs.processes,
    )
    return plan_steps(targets, [len(sample.completion) for sample in inputs.samples], how)


def _padded(rows: Sequence[Sequence[float]], value: float, dtype: torch.dtype, *, left: bool = False) -> torch.Tensor:
    width = max(map(len, rows))
    padding = [[value] * (width - len(row)) for row in rows]
    whole = [[*pad, *row] if left else [*row, *pad] for row, pad in zip(rows, padding, strict=True)]
    return torch.tensor(whole, dtype=dtype)
