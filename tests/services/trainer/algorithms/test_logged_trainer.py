"""TRL's loss on logged samples, held against the formulas of the papers written out by hand."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from ratchet.models.tokenization import load_tokenizer
from services.trainer.algorithms.algorithm import TrainerInputs
from services.trainer.algorithms.grpo import Grpo, advantage_targets
from services.trainer.algorithms.hyperparameters import GrpoHyperparameters, Hyperparameters
from services.trainer.algorithms.policy import separate_head
from services.trainer.algorithms.supervised import (
    BestOfGroupSft,
    SftHyperparameters,
    WeightedSft,
    WeightedSftHyperparameters,
)
from services.trainer.data.samples import TrainingSample
from tests.services.trainer.algorithms.catching import Catch, assert_same, gradients_of
from tests.services.trainer.tiny_policy import tiny_lora, training_samples

SIZES = (2, 5, 3, 4)


@dataclass(frozen=True)
class Bench:
    """Makes trainers over one tiny policy and the ragged groups it sampled, with log-probabilities that are off."""

    model: Path
    samples: list[TrainingSample]
    folder: Path

    def policy(self) -> Any:
        return tiny_lora(self.model)

    def trainer(self, algorithm: Any, knobs: Hyperparameters, micro_batch: int, callbacks: Any = ()) -> Any:
        """For one step on all samples, so many through the model at once."""
        longest = max(sample.length for sample in self.samples)
        one_step = {"epochs": 1, "batch": len(self.samples), "micro_batch_tokens": micro_batch * longest}
        return algorithm.trainer(self.inputs(callbacks), knobs.model_copy(update=one_step))

    def inputs(self, callbacks: Any = ()) -> TrainerInputs:
        return TrainerInputs(
            policy=self.policy(),
            tokenizer=load_tokenizer(self.model),
            samples=self.samples,
            folder=self.folder,
            seed=0,
            temperature=1.0,
            learning_rate=1e-4,
            on_gpu=False,
            callbacks=callbacks,
        )


@pytest.fixture
def bench(base_model: Path, tmp_path: Path) -> Bench:
    return Bench(base_model, training_samples(tiny_lora(base_model), SIZES, seed=5, off=0.6), tmp_path)


@pytest.fixture
def on_policy(base_model: Path, tmp_path: Path) -> Bench:
    return Bench(base_model, training_samples(tiny_lora(base_model), SIZES, seed=5), tmp_path)


def test_worse_answers_weigh_less_and_nothing_where_told() -> None:
    groups = [(0.0, 1.0), (0.5, 0.5)]

    tenth = advantage_targets(groups, "none", negative_weight=0.1)
    none = advantage_targets(groups, "group", negative_weight=0.0)

    assert tenth.weights == pytest.approx((-0.05, 0.5, 0.0, 0.0))
    assert tenth.live == (True, True, False, False)
    assert none.weights == pytest.approx((0.0, 0.70701, 0.0, 0.0), abs=1e-5)
    assert none.live == (False, True, False, False)


def log_probability(policy: Any, sample: TrainingSample) -> torch.Tensor:
    ids = torch.tensor([[*sample.prompt, *sample.completion]])
    logits = policy(input_ids=ids).logits[0, len(sample.prompt) - 1 : -1]
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(list(sample.completion))[:, None])[:, 0]


@pytest.mark.parametrize("tied", [False, True])
def test_a_head_in_float32_brings_16_bit_weights_nearer_to_float32(bench: Bench, tied: bool) -> None:
    def logps(*, cast: bool, dtype: torch.dtype) -> torch.Tensor:
        policy = bench.policy()
        if not tied:
            separate_head(policy)
        inputs = replace(bench.inputs(), policy=policy.to(dtype))
        trainer = Grpo().trainer(inputs, GrpoHyperparameters(cast_lm_head_to_fp32=cast, epochs=1))
        return trainer.logps(trainer.layout(range(8), 8)).float()

    exact = logps(cast=False, dtype=torch.float32)
    plain, cast = (logps(cast=cast, dtype=torch.bfloat16) - exact for cast in (False, True))

    assert cast.abs().mean() < plain.abs().mean()


def clipped(ratio: torch.Tensor, advantage: float, cap: float) -> torch.Tensor:
    return -torch.minimum(ratio.clamp(max=cap) * advantage, ratio.clamp(0.8, 1.28) * advantage)


def dapo(rows: list[tuple[torch.Tensor, torch.Tensor, float]]) -> torch.Tensor:
    """Sum over all tokens, over their number."""
    losses = [clipped((new - old).exp(), advantage, 4.0).sum() for new, old, advantage in rows]
    return torch.stack(losses).sum() / sum(len(new) for new, _, _ in rows)


def dr_grpo(rows: list[tuple[torch.Tensor, torch.Tensor, float]]) -> torch.Tensor:
    """Sum over all tokens, over a constant: samples times the longest completion."""
    losses = [clipped((new - old).exp(), advantage, 4.0).sum() for new, old, advantage in rows]
    return torch.stack(losses).sum() / (len(rows) * max(len(new) for new, _, _ in rows))


def gspo(rows: list[tuple[torch.Tensor, torch.Tensor, float]]) -> torch.Tensor:
    """The ratio of a sequence is the geometric mean of its tokens'; mean over the sequences."""
    losses = [clipped((new - old).mean().exp(), advantage, 4.0) for new, old, advantage in rows]
    return torch.stack(losses).mean()


def cispo(rows: list[tuple[torch.Tensor, torch.Tensor, float]]) -> torch.Tensor:
    """The capped ratio is a constant weight of the log-probability; sum over all tokens, over their number."""
    losses = [-((new - old).exp().clamp(max=4.0).detach() * advantage * new).sum() for new, old, advantage in rows]
    return torch.stack(losses).sum() / sum(len(new) for new, _, _ in rows)


def vespo(rows: list[tuple[torch.Tensor, torch.Tensor, float]]) -> torch.Tensor:
    """The answer's weight is (w e^(1-w))^2 e^(1-w) where it was better than its group, w (w e^(1-w))^2 where worse, w
    the ratio of the whole sequence; sum over all tokens, over their number."""
    losses = []
    for new, old, advantage in rows:
        w = (new - old).sum().exp().detach()
        power, decay = (2.0, 3.0) if advantage >= 0 else (3.0, 2.0)
        losses.append(-(w**power * (decay * (1 - w)).exp() * advantage * new).sum())
    return torch.stack(losses).sum() / sum(len(new) for new, _, _ in rows)


@pytest.mark.parametrize("micro_batch", [14, 3], ids=["at once", "in pieces"])
@pytest.mark.parametrize("loss", [dapo, dr_grpo, gspo, cispo, vespo])
def test_the_gradient_is_that_of_the_formula(
    bench: Bench, loss: Callable[[Any], torch.Tensor], micro_batch: int
) -> None:
    # given groups in which some sample has no advantage, and ratios far from 1
    knobs = GrpoHyperparameters(loss=loss.__name__, clip_low=0.2, clip_high=0.28, max_grad_norm=1e9)
    catch = Catch()

    # when TRL takes one step
    bench.trainer(Grpo(), knobs, micro_batch, (catch,)).train()

    # then
    policy = bench.policy()
    new = [log_probability(policy, sample) for sample in bench.samples]
    old = [torch.tensor(sample.logprobs.tolist()) for sample in bench.samples]
    weights = advantage_targets(bench.inputs().scores, knobs.scale, knobs.negative_weight).weights
    loss(list(zip(new, old, weights, strict=True))).backward()  # type: ignore[no-untyped-call]
    assert_same(catch.gradients, gradients_of(policy))


def test_the_ratio_is_to_the_logged_policy_and_not_one(bench: Bench, on_policy: Bench) -> None:
    """With the ratio at 1 the gradient would not depend on what was logged."""
    knobs = GrpoHyperparameters(max_grad_norm=1e9)
    found = []
    for one in (bench, on_policy):
        catch = Catch()
        one.trainer(Grpo(), knobs, 14, (catch,)).train()
        found.append(catch.gradients)

    differences = [(found[0][name] - found[1][name]).abs().max() for name in found[0]]

    assert max(differences) > 1e-3


@pytest.mark.parametrize("kl_to", ["parent", "base"])
def test_with_beta_the_divergence_from_the_reference_is_in_the_gradient(on_policy: Bench, kl_to: str) -> None:
    """Schulman's k3, weighted with the ratio: of samples by another policy it is then unbiased, and so its gradient."""
    knobs = GrpoHyperparameters(beta=0.5, kl_to=kl_to, max_grad_norm=1e9)
    catch = Catch()

    on_policy.trainer(Grpo(), knobs, 3, (catch,)).train()

    policy = on_policy.policy()
    reference = on_policy.policy() if kl_to == "parent" else LlamaForCausalLM.from_pretrained(on_policy.model)
    new = [log_probability(policy, sample) for sample in on_policy.samples]
    old = [torch.tensor(sample.logprobs.tolist()) for sample in on_policy.samples]
    with torch.no_grad():
        ref = [log_probability(reference, sample) for sample in on_policy.samples]
    apart = [(n - o).exp() * ((r - n).exp() - (r - n) - 1) for r, n, o in zip(ref, new, old, strict=True)]
    total = sum(len(one) for one in new)
    weights = advantage_targets(on_policy.inputs().scores, knobs.scale, knobs.negative_weight).weights
    (dapo(list(zip(new, old, weights, strict=True))) + 0.5 * torch.cat(apart).sum() / total).backward()  # type: ignore[no-untyped-call]
    assert_same(catch.gradients, gradients_of(policy))


def test_sft_maximises_the_likelihood_of_the_best_answer_of_each_group(bench: Bench) -> None:
    knobs = SftHyperparameters(max_grad_norm=1e9)
    catch = Catch()

    bench.trainer(BestOfGroupSft(), knobs, 3, (catch,)).train()

    best = [max(group, key=lambda sample: sample.score) for group in bench.inputs().groups]
    policy = bench.policy()
    (-torch.cat([log_probability(policy, sample) for sample in best]).mean()).backward()  # type: ignore[no-untyped-call]
    assert_same(catch.gradients, gradients_of(policy))


def test_weighted_sft_learns_from_each_answer_as_much_as_it_is_better(bench: Bench) -> None:
    knobs = WeightedSftHyperparameters(max_grad_norm=1e9)
    catch = Catch()

    bench.trainer(WeightedSft(), knobs, 3, (catch,)).train()

    weights = [max(0.0, weight) for weight in advantage_targets(bench.inputs().scores, "none", 1.0).weights]
    policy = bench.policy()
    sums = [weight * log_probability(policy, one).sum() for weight, one in zip(weights, bench.samples, strict=True)]
    tokens = sum(len(sample.completion) for sample in bench.samples)
    (-torch.stack(sums).sum() / tokens).backward()  # type: ignore[no-untyped-call]
    assert_same(catch.gradients, gradients_of(policy))


def test_worse_answers_that_have_become_unlikelier_are_masked_where_asked(on_policy: Bench) -> None:
    # given logged log-probabilities from which the policy has fallen for every other answer, and risen for the rest
    samples = [
        replace(sample, logprobs=array("f", (value + (0.1 if number % 2 else -0.1) for value in sample.logprobs)))
        for number, sample in enumerate(on_policy.samples)
    ]
    bench = replace(on_policy, samples=samples)
    knobs = GrpoHyperparameters(off_policy_mask=0.05, negative_weight=1.0, max_grad_norm=1e9)
    catch = Catch()

    bench.trainer(Grpo(), knobs, 3, (catch,)).train()

    policy = bench.policy()
    new = [log_probability(policy, sample) for sample in bench.samples]
    old = [torch.tensor(sample.logprobs.tolist()) for sample in bench.samples]
    weights = advantage_targets(bench.inputs().scores, "none", 1.0).weights
    moved = [(o - n.detach()).mean().item() for n, o in zip(new, old, strict=True)]
    masked = [weight < 0 and fallen > 0.05 for weight, fallen in zip(weights, moved, strict=True)]
    assert any(masked) and not all(gone for gone, weight in zip(masked, weights, strict=True) if weight < 0)
    kept = [0.0 if gone else weight for gone, weight in zip(masked, weights, strict=True)]
    losses = [
        -torch.minimum(r.clamp(max=4.0) * weight, r.clamp(0.8, 4.0) * weight).sum()
        for r, weight in zip(((n - o).exp() for n, o in zip(new, old, strict=True)), kept, strict=True)
    ]
    (torch.stack(losses).sum() / sum(len(n) for n in new)).backward()  # type: ignore[no-untyped-call]
    assert_same(catch.gradients, gradients_of(policy))


def test_gspo_is_clipped_as_published_and_the_others_wider() -> None:
    def clips(**given: Any) -> tuple[float | None, float | None]:
        knobs = GrpoHyperparameters.read({}, given)
        return knobs.clip_low, knobs.clip_high

    assert clips(loss="gspo") == (3e-4, 4e-4)
    assert clips(loss="gspo", clip_high=0.01) == (3e-4, 0.01)
    assert clips() == clips(loss="dr_grpo") == (0.2, 3.0)
