"""TRL's GRPOTrainer on completions that were logged, not generated: the loss, the loop, the checkpoints are TRL's.

One method is replaced: where TRL would generate and score, the samples of the plan's next micro-batch are laid out as
tensors, with the logged log-probabilities as those of the old policy, so that the ratio is new over *logged*. (TRL's
own way for that, a `rollout_func`, ignores them without vLLM: the ratio is then identically 1.) Both names are TRL's
private matter: the version is pinned, and tests hold its losses against formulas written by hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from transformers import DynamicCache, PrinterCallback
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import use_adapter

from ratchet.models.loading import half_precision
from ratchet.service.errors import TrainingError
from ratchet.service.telemetry import Log
from services.trainer.algorithms.algorithm import TrainerInputs
from services.trainer.algorithms.arguments import training_arguments
from services.trainer.algorithms.hyperparameters import Hyperparameters
from services.trainer.algorithms.plan import MicroBatch, Plan, TrainingTargets
from services.trainer.algorithms.planned_trainer import PlannedTrainer, plan_of, step_rows
from services.trainer.algorithms.policy import separate_head
from services.trainer.algorithms.shared_prompts import (
    IGNORED,
    SharedPrompts,
    is_cheaper,
    masked_logps,
    share_prompts,
    stacked_masks,
)

PER_TOKEN_LOSSES = ("dapo", "cispo", "vespo")
"""Losses that TRL divides by the tokens of the step; the others it averages over the rows of a micro-batch."""

SHARING_TRIAL = 16
SHARING_TOLERANCE, SHARING_TOLERANCE_16 = 1e-3, 0.1
"""Largest difference of a log-probability, in nats, that the order of operations explains; in float32, in bfloat16."""

Tensors = dict[str, torch.Tensor]

log = Log("trainer")


class LoggedTrainer(PlannedTrainer, GRPOTrainer):  # type: ignore[misc]
    """Goes through its plan once. `loss`: GRPOConfig's arguments that choose one."""

    def __init__(
        self, inputs: TrainerInputs, hyperparameters: Hyperparameters, targets: TrainingTargets, **loss: Any
    ) -> None:
        self.samples = samples = [*inputs.samples, *inputs.demonstrations]
        own = len(inputs.rollouts)
        rollouts = [*inputs.rollouts, *((row,) for row in range(len(inputs.samples), len(samples)))]
        shown = TrainingTargets(
            tuple((number,) for number in range(own, len(rollouts))),
            (*targets.weights, *[1.0] * len(inputs.demonstrations)),
            (*targets.live, *[True] * len(inputs.demonstrations)),
        )
        self.targets = replace(shown, used=targets.used + shown.used)
        self._rollout = {row: number for number, rows in enumerate(rollouts) for row in rows}
        self._grammars = inputs.grammars if any(sample.grammars for sample in samples) else None
        self._masks: torch.Tensor | None = None
        """Masks of the rows at work, where one of them was held to a grammar."""
        self._has_given = any(sample.sampled is not None for sample in samples)
        tokens = [sample.tokens for sample in samples]
        sizes = [sample.size for sample in samples]

        def plan_part(used: tuple[tuple[int, ...], ...], knobs: Hyperparameters) -> Plan:
            part = replace(self.targets, used=used)
            return plan_of(inputs, knobs, part, sizes, rollouts=rollouts, counted=tokens)

        self.plan = plan_part(targets.used, hyperparameters) if targets.used else Plan((), inputs.processes)
        if shown.used:
            first = plan_part(shown.used, hyperparameters.for_demonstrations(len(shown.used))).of_demonstrations
            self.plan = Plan(first.steps + self.plan.steps, inputs.processes)
        self._shortest = min(range(len(samples)), key=lambda number: samples[number].length)
        if loss.get("cast_lm_head_to_fp32"):
            separate_head(inputs.policy)
        args = GRPOConfig(
            **training_arguments(inputs, hyperparameters),
            num_train_epochs=1,  # the plan holds all epochs
            per_device_train_batch_size=2,  # TRL wants num_generations to divide it; the plan makes the batches
            num_generations=2,
            steps_per_generation=1,
            gradient_accumulation_steps=1,  # a step goes through its micro-batches by itself
            max_completion_length=max(sum(tokens[row] for row in rows) for rows in rollouts),
            temperature=inputs.temperature,
            shuffle_dataset=False,
            disable_dropout=True,
            **loss,
        )
        super().__init__(
            inputs.policy,
            scored_already,
            args=args,
            train_dataset=step_rows(self.plan),
            processing_class=inputs.tokenizer,
            callbacks=list(inputs.callbacks),
        )
        self.remove_callback(PrinterCallback)
        self._seen_logps: torch.Tensor | None = None
        config = self.trained_policy.config.get_text_config()
        self._parameters = int(self.trained_policy.num_parameters())
        self._width = int(config.hidden_size * config.num_hidden_layers)
        half = half_precision(inputs.policy.device) if inputs.on_gpu else None
        self._mask_dtype = half or self.trained_policy.get_base_model().dtype
        on_cpu = inputs.policy.device.type == "cpu"
        # what it saves by, each of which bench/training leaves out in turn
        self.together = True
        self.takes_prefixes = inputs.processes == 1 and not args.activation_checkpointing
        self.states = AnswerStates(self.trained_policy.get_base_model().base_model) if on_cpu else None
        self._shares_prompts = self._can_share_prompts()

    def tensors(self, micro_batch: MicroBatch) -> Any:
        return [{"micro_batch": micro_batch}]

    def scores_of(self, numbers: Sequence[int]) -> list[float]:
        """One a rollout."""
        own = [number for number in numbers if self.samples[number].demonstration is None]
        return list({self._rollout[number]: self.samples[number].score for number in own}.values())

    def _generate_and_score_completions(self, inputs: list[dict[str, MicroBatch]]) -> Tensors:
        (row,) = inputs
        micro_batch = row["micro_batch"]
        tensors = self.layout(micro_batch.samples, micro_batch.rows)
        tensors["num_items_in_batch"] = torch.tensor(
            micro_batch.step_tokens, device=self.accelerator.device, dtype=torch.float32
        )
        if self.beta != 0.0:
            tensors["ref_per_token_logps"] = self._reference_logps(tensors)
        return tensors

    def layout(self, numbers: Sequence[int], rows: int) -> Tensors:
        """Samples as TRL's loss takes them; shapes (rows, tokens), prompts padded left, completions right.

        Rows beyond the samples are masked out. Tokens that were given, not sampled, are masked from the loss alone, by
        TRL's `tool_mask`: all see them.
        """
        filler = numbers[0] if numbers else self._shortest
        filled = [*numbers, *[filler] * (rows - len(numbers))]
        samples = [self.samples[number] for number in filled]
        device, pad = self.accelerator.device, self.processing_class.pad_token_id
        prompts = [sample.prompt for sample in samples]
        completions = [sample.completion for sample in samples]
        tensors = {
            "prompt_ids": _pad(prompts, pad, torch.long, left=True),
            "prompt_mask": _pad([[1] * len(ids) for ids in prompts], 0, torch.long, left=True),
            "completion_ids": _pad(completions, pad, torch.long),
            "completion_mask": _pad([[1] * len(ids) for ids in completions], 0, torch.long),
            "old_per_token_logps": _pad([sample.logprobs for sample in samples], 0.0, torch.float32),
            "advantages": torch.tensor(
                [self.targets.weights[self._rollout[number]] for number in filled], dtype=torch.float32
            ),
        }
        if self._has_given:
            sampled = [sample.sampled or [1] * len(sample.completion) for sample in samples]
            tensors["tool_mask"] = _pad(sampled, 0, torch.long)
        if self._grammars is not None and any(sample.grammars for sample in samples):
            tensors["masks"] = stacked_masks(self._grammars, samples)
        tensors["completion_mask"][len(numbers) :] = 0
        if tensors["old_per_token_logps"].shape != tensors["completion_ids"].shape:
            raise TrainingError("log-probabilities and tokens do not align: the log is not what the trainer expects")
        return {name: tensor.to(device) for name, tensor in tensors.items()}

    def logps(self, tensors: Tensors) -> torch.Tensor:
        """Log-probabilities of the completions' tokens under the policy as it is; (rows, tokens), no gradient."""
        ids = torch.cat([tensors["prompt_ids"], tensors["completion_ids"]], dim=1)
        mask = torch.cat([tensors["prompt_mask"], tensors["completion_mask"]], dim=1)
        self._masks = tensors.get("masks")
        with torch.no_grad():
            found, _, _ = self._get_per_token_logps_and_entropies(
                self.model, ids, mask, tensors["completion_ids"].size(1)
            )
        return torch.as_tensor(found)

    def _reference_logps(self, tensors: Tensors) -> torch.Tensor:
        """Log-probabilities under the parent, where TRL keeps a copy of it, `ref`; else under the base model."""
        policy = self.trained_policy
        with use_adapter(policy, adapter_name="ref" if "ref" in policy.peft_config else None):
            return self.logps(tensors)

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int, **options: Any
    ) -> Any:
        """TRL's, or cheaper: with each prompt once, where the model takes it and it saves something.

        Of rows that were held to grammars, those among the tokens that were allowed.
        """
        found = None
        if self._shares_prompts and not options.get("compute_aux_loss"):
            found = self._with_shared_prompts(model, input_ids, attention_mask, logits_to_keep, self._masks)
        if found is None and self._masks is not None:
            found = self._under_grammars(model, input_ids, attention_mask, logits_to_keep, self._masks)
        if found is None:
            plain = super()._get_per_token_logps_and_entropies
            found = plain(model, input_ids, attention_mask, logits_to_keep, **options)
        self._seen_logps = found[0].detach()
        return found

    def _under_grammars(
        self, model: Any, ids: torch.Tensor, mask: torch.Tensor, completion: int, masks: torch.Tensor
    ) -> Any:
        """Log-probabilities, entropies and no router loss. All logits of the completions are in memory at once."""
        with self.accelerator.autocast():
            output = model(input_ids=ids, attention_mask=mask, logits_to_keep=completion + 1, use_cache=False)
        return *self._among_allowed(output.logits[:, :-1], masks, ids[:, -completion:]), None

    def _among_allowed(
        self, logits: torch.Tensor, masks: torch.Tensor, tokens: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities of the tokens and entropies, among the tokens that the masks allow at each place."""
        logps = masked_logps(logits.float() / self.temperature, masks)
        plain = logps.detach()
        entropies = -(plain.exp() * plain.masked_fill(plain.isinf(), 0.0)).sum(-1)
        return logps.gather(-1, tokens[..., None])[..., 0], entropies

    def _with_shared_prompts(
        self, model: Any, ids: torch.Tensor, mask: torch.Tensor, completion: int, masks: torch.Tensor | None = None
    ) -> Any:
        """Log-probabilities, entropies and no router loss; None where the way without it is as cheap, or the only one.

        `masks`, (rows, completion, words): of rows that were held to grammars.
        """
        padding = self.processing_class.pad_token_id
        shared = share_prompts(ids, mask, completion, padding)
        if not (self.together and is_cheaper(ids.shape, shared.ids.shape, self._parameters, self._width)):
            if self.states is None:
                return None
            shared = share_prompts(ids, mask, completion, padding, together=False)
        begun = shared.prefix if self.takes_prefixes else 0
        labels = shared.labels[:, begun:]
        answers = labels != IGNORED
        some = self.states is not None and bool(answers.any())
        placed = None if masks is None else shared.spread(masks)
        if masks is not None and (placed is None or not some):
            return None  # equal answers were held to different grammars, or the head gets the prompts' tokens, too
        head: dict[str, Any] = {}
        if placed is None:
            head = {"shift_labels": labels[answers][None] if some else labels, "fused_lm_head": True}
        with self.accelerator.autocast(), self.states.only(answers) if self.states and some else nullcontext():
            output = model(
                input_ids=shared.ids[:, begun:],
                attention_mask=shared.mask(self._mask_dtype)[:, :, begun:],
                position_ids=shared.positions[:, begun:],
                **head,
                **({"past_key_values": self._prefix(shared, begun)} if begun else {}),
            )

        def place(values: torch.Tensor) -> torch.Tensor:
            if some:
                values = values.new_zeros(labels.shape).masked_scatter(answers, values[0])
            return shared.gather(torch.nn.functional.pad(values, (begun, 0)))

        if placed is None:
            return place(output.log_probs), place(output.entropy), None
        found = self._among_allowed(output.logits, placed[:, begun:][answers][None], labels[answers][None])
        return place(found[0]), place(found[1]), None

    def _prefix(self, shared: SharedPrompts, length: int) -> DynamicCache:
        """Keys and values of what all sequences begin with, for each of them, with their gradient."""
        cache = DynamicCache()
        backbone = self.trained_policy.get_base_model().base_model
        backbone(input_ids=shared.ids[:1, :length], past_key_values=cache, use_cache=True)
        for layer in cache.layers:
            layer.keys = layer.keys.expand(len(shared.ids), -1, -1, -1)
            layer.values = layer.values.expand(len(shared.ids), -1, -1, -1)
        return cache

    @torch.no_grad()
    def _can_share_prompts(self) -> bool:
        """Tries it on one micro-batch: models with other ways to mix tokens than masked attention give other values."""
        numbers = self.plan.micro_batches[0].samples[:SHARING_TRIAL] or (self._shortest,)
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
        self._masks = inputs.get("masks")
        if self._micro_batch.is_demonstrations:
            return self._supervised_loss(model, inputs)
        loss = torch.as_tensor(super()._compute_loss(model, inputs))
        self._measure(inputs)
        return loss if self.loss_type in PER_TOKEN_LOSSES else self.mean_over_step(loss)

    def _supervised_loss(self, model: Any, inputs: Tensors) -> torch.Tensor:
        """Cross-entropy of the answers, each token weighted as its answer: over the tokens of the step's answers.

        No ratio to logged log-probabilities, and no clipping.
        """
        self._masks = inputs.get("masks")
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        completions = loss_mask(inputs)
        logps, entropies, _ = self._get_per_token_logps_and_entropies(
            model, ids, mask, completions.size(1), compute_entropy=True
        )
        weighted = logps * completions * inputs["advantages"][:, None]
        self._measure(inputs)
        entropy, tokens = self.accelerator.reduce(
            torch.stack([(entropies.detach() * completions).sum(), completions.sum()])
        )
        self._metrics["train"]["entropy"].append((entropy / tokens.clamp(min=1)).item())
        return torch.as_tensor(-weighted.sum() * self.plan.processes / inputs["num_items_in_batch"])

    def _measure(self, inputs: Tensors) -> None:
        assert self._seen_logps is not None
        if self._micro_batch.is_demonstrations:
            self.count_demonstrations(self._seen_logps, loss_mask(inputs))
            return
        self.compare(self._seen_logps, inputs["old_per_token_logps"], loss_mask(inputs), inputs["advantages"] > 0)


def loss_mask(tensors: Tensors) -> torch.Tensor:
    """Return 1 for the tokens of the completions that are learned from, else 0."""
    return tensors["completion_mask"] * tensors.get("tool_mask", 1)


class AnswerStates:
    """Hands the head only the hidden states that an answer's token is predicted from.

    TRL's head picks them out itself where it has Triton; elsewhere it would project every token of the prompts too.
    """

    def __init__(self, backbone: Any) -> None:
        self._places: torch.Tensor | None = None
        backbone.register_forward_hook(self._keep)

    @contextmanager
    def only(self, places: torch.Tensor) -> Iterator[None]:
        """Take from the next pass through the model only these places, (sequences, tokens), as one row."""
        self._places = places
        try:
            yield
        finally:
            self._places = None

    def _keep(self, backbone: Any, given: Any, output: Any) -> None:
        if self._places is not None and output.last_hidden_state.shape[:2] == self._places.shape:
            output.last_hidden_state = output.last_hidden_state[self._places][None]


def scored_already(*_: Any, **__: Any) -> list[float]:
    """TRL insists on a reward function. Nothing may ask it: the samples carry the scores of the fleet's scorer."""
    raise TrainingError("TRL asked for rewards of logged samples: its version is not the one the trainer was made for")


def _pad(rows: Sequence[Sequence[float]], value: float, dtype: torch.dtype, *, left: bool = False) -> torch.Tensor:
    width = max(map(len, rows))
    padding = [[value] * (width - len(row)) for row in rows]
    whole = [[*pad, *row] if left else [*row, *pad] for row, pad in zip(rows, padding, strict=True)]
    return torch.tensor(whole, dtype=dtype)
