"""TRL's loss on logged samples, held against the formulas of the papers written out by hand."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM, TrainerCallback

from ratchet.models.tokenization import load_tokenizer
from services.trainer.algorithm import TrainerInputs, TrainingTargets
from services.trainer.best_of_group_sft import BestOfGroupSft, SftHyperparameters
from services.trainer.grpo import Grpo
from services.trainer.hyperparameters import GrpoHyperparameters
from services.trainer.logged_trainer import LoggedTrainer
from services.trainer.plan import Batching, plan_steps
from services.trainer.samples import TrainingSample
from services.trainer.support import match_of
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

    def trainer(
        self, algorithm: Any, knobs: Any, lessons: TrainingTargets, micro_batch: int, callbacks: Any = ()
    ) -> Any:
        how = Batching(epochs=1, batch=len(self.samples), micro_batch=micro_batch, seed=0)
        tokens = [len(sample.completion) for sample in self.samples]
        course = TrainerInputs(
            policy=self.policy(),
            tokenizer=load_tokenizer(self.model),
            samples=self.samples,
            lessons=lessons,
            plan=plan_steps(lessons.used, tokens, lessons.live, how),
            folder=self.folder,
            seed=0,
            temperature=1.0,
            learning_rate=1e-4,
            on_gpu=False,
            callbacks=callbacks,
        )
        return algorithm.trainer(course, knobs)


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


def lessons_of(samples: Sequence[TrainingSample], knobs: GrpoHyperparameters) -> TrainingTargets:
    groups: dict[int, list[float]] = {}
    for sample in samples:
        groups.setdefault(sample.group, []).append(sample.score)
    return Grpo().lessons(list(groups.values()), knobs)


def test_worse_answers_weigh_less_and_nothing_where_told() -> None:
    groups = [(0.0, 1.0), (0.5, 0.5)]

    tenth = Grpo().lessons(groups, GrpoHyperparameters(negative_weight=0.1))
    none = Grpo().lessons(groups, GrpoHyperparameters(negative_weight=0.0, scale="group"))

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
    lessons = lessons_of(bench.samples, knobs)
    catch = Catch()

    # when TRL takes one step
    bench.trainer(Grpo(), knobs, lessons, micro_batch, (catch,)).train()

    # then
    policy = bench.policy()
    new = [log_probability(policy, sample) for sample in bench.samples]
    old = [torch.tensor(sample.logprobs.tolist()) for sample in bench.samples]
    loss(list(zip(new, old, lessons.weights, strict=True))).backward()  # type: ignore[no-untyped-call]
    assert_same(catch.gradients, gradients_of(policy))


def test_the_ratio_is_to_the_logged_policy_and_not_one(bench: Bench, on_policy: Bench) -> None:
    """With the ratio at 1 the gradient would not depend on what was logged."""
    knobs = GrpoHyperparameters(max_grad_norm=1e9)
    found = []
    for one in (bench, on_policy):
        catch = Catch()
        one.trainer(Grpo(), knobs, lessons_of(one.samples, knobs), 14, (catch,)).train()
        found.append(catch.gradients)

    differences = [(found[0][name] - found[1][name]).abs().max() for name in found[0]]

    assert max(differences) > 1e-3


@pytest.mark.parametrize("kl_to", ["parent", "base"])
def test_with_beta_the_divergence_from_the_reference_is_in_the_gradient(on_policy: Bench, kl_to: str) -> None:
    """Schulman's k3, weighted with the ratio: of samples by another policy it is then unbiased, and so its gradient."""
    knobs = GrpoHyperparameters(beta=0.5, kl_to=kl_to, max_grad_norm=1e9)
    lessons = lessons_of(on_policy.samples, knobs)
    catch = Catch()

    on_policy.trainer(Grpo(), knobs, lessons, 3, (catch,)).train()

    policy = on_policy.policy()
    reference = on_policy.policy() if kl_to == "parent" else LlamaForCausalLM.from_pretrained(on_policy.model)
    new = [log_probability(policy, sample) for sample in on_policy.samples]
    old = [torch.tensor(sample.logprobs.tolist()) for sample in on_policy.samples]
    with torch.no_grad():
        ref = [log_probability(reference, sample) for sample in on_policy.samples]
    apart = [(n - o).exp() * ((r - n).exp() - (r - n) - 1) for r, n, o in zip(ref, new, old, strict=True)]
    total = sum(len(one) for one in new)
    (dapo(list(zip(new, old, lessons.weights, strict=True))) + 0.5 * torch.cat(apart).sum() / total).backward()  # type: ignore[no-untyped-call]
    assert_same(catch.gradients, gradients_of(policy))


def test_sft_maximises_the_likelihood_of_the_best_answer_of_each_group(bench: Bench) -> None:
    groups: dict[int, list[float]] = {}
    for sample in bench.samples:
        groups.setdefault(sample.group, []).append(sample.score)
    knobs = SftHyperparameters(max_grad_norm=1e9)
    lessons = BestOfGroupSft().lessons(list(groups.values()), knobs)
    catch = Catch()

    bench.trainer(BestOfGroupSft(), knobs, lessons, 3, (catch,)).train()

    best = [max((s for s in bench.samples if s.group == group), key=lambda s: s.score) for group in groups]
    policy = bench.policy()
    (-torch.cat([log_probability(policy, sample) for sample in best]).mean()).backward()  # type: ignore[no-untyped-call]
    assert_same(catch.gradients, gradients_of(policy))


def test_a_policy_finds_its_own_log_probabilities_and_not_those_of_another(bench: Bench, on_policy: Bench) -> None:
    knobs = GrpoHyperparameters()

    def match(one: Bench) -> Any:
        trainer: LoggedTrainer = one.trainer(Grpo(), knobs, lessons_of(one.samples, knobs), 4)
        return match_of(trainer.ratios(range(len(one.samples)), lambda sample: True))

    own, off = match(on_policy), match(bench)
    assert own.gap == pytest.approx(0, abs=1e-5)
    assert (own.effective_share, own.mean_weight) == pytest.approx((1, 1), abs=1e-4)
    assert off.gap == pytest.approx(0.3, abs=0.06)  # the mean of |uniform(-0.6, 0.6)|
    assert off.effective_share < 0.9


def test_importance_weights_are_those_of_whole_sequences(on_policy: Bench) -> None:
    knobs = GrpoHyperparameters()
    rng = random.Random(2)
    shifts = {number: rng.uniform(-0.3, 0.3) for number in range(len(on_policy.samples))}
    for number, sample in enumerate(on_policy.samples):
        for place in range(len(sample.logprobs)):
            sample.logprobs[place] -= shifts[number]
    trainer: LoggedTrainer = on_policy.trainer(Grpo(), knobs, lessons_of(on_policy.samples, knobs), 4)

    ratios = trainer.ratios(range(len(on_policy.samples)), lambda sample: sample.group == 0)

    for number, (ratio, sample) in enumerate(zip(ratios, on_policy.samples, strict=True)):
        assert ratio.log_weight == pytest.approx(shifts[number] * len(sample.completion), abs=1e-4)
        assert ratio.own is (sample.group == 0)


def assert_same(found: Gradients, expected: Gradients) -> None:
    assert found.keys() == expected.keys()
    assert max(gradient.abs().max() for gradient in expected.values()) > 1e-3
    for name, gradient in expected.items():
        assert torch.allclose(found[name], gradient, rtol=1e-3, atol=1e-6), name
