"""TRL's loss on logged samples, held against the formulas of the papers written out by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM, TrainerCallback

from ratchet.models.tokenization import load_tokenizer
from services.trainer.algorithms.algorithm import TrainerInputs
from services.trainer.algorithms.best_of_group_sft import BestOfGroupSft, SftHyperparameters
from services.trainer.algorithms.grpo import Grpo
from services.trainer.algorithms.hyperparameters import GrpoHyperparameters, Hyperparameters
from services.trainer.data.samples import TrainingSample
from tests.services.trainer.tiny_policy import tiny_lora, training_samples

SIZES = (2, 5, 3, 4)
Gradients = dict[str, torch.Tensor]


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


class Catch(TrainerCallback):  # type: ignore[misc]
    """The gradient as the optimiser gets it."""

    def __init__(self) -> None:
        self.gradients: Gradients = {}

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any, **given: Any) -> None:
        self.gradients = gradients_of(model)


def gradients_of(policy: Any) -> Gradients:
    return {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}


def test_worse_answers_weigh_less_and_nothing_where_told() -> None:
    groups = [(0.0, 1.0), (0.5, 0.5)]

    tenth = Grpo().targets(groups, GrpoHyperparameters(negative_weight=0.1))
    none = Grpo().targets(groups, GrpoHyperparameters(negative_weight=0.0, scale="group"))

    assert tenth.weights == pytest.approx((-0.05, 0.5, 0.0, 0.0))
    assert tenth.live == (True, True, False, False)
    assert none.weights == pytest.approx((0.0, 0.70701, 0.0, 0.0), abs=1e-5)
    assert none.live == (False, True, False, False)


def log_probability(policy: Any, sample: TrainingSample) -> torch.Tensor:
    ids = torch.tensor([[*sample.prompt, *sample.completion]])
    logits = policy(input_ids=ids).logits[0, len(sample.prompt) - 1 : -1]
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(list(sample.completion))[:, None])[:, 0]


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


@pytest.mark.parametrize("micro_batch", [14, 3], ids=["at once", "in pieces"])
@pytest.mark.parametrize("loss", [dapo, dr_grpo, gspo, cispo])
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
    weights = Grpo().targets(bench.inputs().scores, knobs).weights
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
    weights = Grpo().targets(on_policy.inputs().scores, knobs).weights
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


def assert_same(found: Gradients, expected: Gradients) -> None:
    assert found.keys() == expected.keys()
    assert max(gradient.abs().max() for gradient in expected.values()) > 1e-3
    for name, gradient in expected.items():
        assert torch.allclose(found[name], gradient, rtol=1e-3, atol=1e-6), name
