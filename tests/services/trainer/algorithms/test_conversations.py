"""Rollouts of several calls: what is learned of them, held against formulas by hand, and however they are cut."""

from __future__ import annotations

import itertools
import random
from array import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ratchet.models.tokenization import load_tokenizer
from ratchet.service.errors import TrainingRefused
from services.trainer.algorithms.algorithm import TrainerInputs
from services.trainer.algorithms.grpo import Grpo, advantage_targets
from services.trainer.algorithms.hyperparameters import (
    GrpoHyperparameters,
    Hyperparameters,
    KtoHyperparameters,
)
from services.trainer.algorithms.policy import sample_ratios
from services.trainer.algorithms.preferences import Kto
from services.trainer.algorithms.supervised import WeightedSft, WeightedSftHyperparameters
from services.trainer.data.samples import TrainingSample
from tests.services.trainer.algorithms.catching import Catch, assert_same, gradients_of
from tests.services.trainer.tiny_policy import sampled, score_of, tiny_lora

TURNS = 3
GROUPS = (2, 3)


@pytest.fixture(scope="module")
def rollouts(base_model: Path) -> list[TrainingSample]:
    """Linear ones, a segment each: three answers by the policy itself, with given tokens in between."""
    policy, rng = tiny_lora(base_model), random.Random(7)
    return [rollout_of(policy, group, number, rng) for group, size in enumerate(GROUPS) for number in range(size)]


def rollout_of(policy: Any, group: int, number: int, rng: random.Random) -> TrainingSample:
    prompt = [group + 3, 65, 66]
    ids: list[int] = []
    logprobs: list[float] = []
    mask: list[int] = []
    for turn in range(TURNS):
        between = [rng.randrange(256) for _ in range(rng.randrange(1, 4) if turn else 0)]
        ((answer, found),) = sampled(policy, [[*prompt, *ids, *between]], 1, seed=rng.randrange(999))[0]
        ids += [*between, *answer]
        logprobs += [*[0.0] * len(between), *found]
        mask += [*[0] * len(between), *[1] * len(answer)]
    return TrainingSample(
        group=group,
        version="v1.0.1",
        score=score_of(ids) + 0.1 * number,
        prompt=array("l", prompt),
        completion=array("l", ids),
        logprobs=array("f", logprobs),
        sampled=array("b", mask),
        rollout=number,
    )


def split(sample: TrainingSample, cuts: Sequence[int]) -> list[TrainingSample]:
    """Into segments before each of those answers, each with all that came before as its prompt."""
    mask = sample.sampled
    assert mask is not None
    starts = [place for place, (before, one) in enumerate(itertools.pairwise([0, *mask])) if one and not before]
    edges = [0, *(starts[cut] for cut in cuts), len(mask)]
    return [
        replace(
            sample,
            prompt=sample.prompt + sample.completion[:start],
            completion=sample.completion[start:end],
            logprobs=sample.logprobs[start:end],
            sampled=mask[start:end],
            broke=None if not start else "rewritten",
        )
        for start, end in itertools.pairwise(edges)
    ]


def off(samples: Sequence[TrainingSample], by: float = 0.3) -> list[TrainingSample]:
    """As if a policy somewhat different had sampled them, so that ratios are not 1."""
    rng = random.Random(1)
    return [
        replace(one, logprobs=array("f", (value + rng.uniform(-by, by) for value in one.logprobs))) for one in samples
    ]


def gradient(
    model: Path, folder: Path, samples: list[TrainingSample], algorithm: Any, knobs: Hyperparameters, tokens: int
) -> dict[str, torch.Tensor]:
    catch = Catch()
    one_step = {"epochs": 1, "batch": sum(GROUPS), "micro_batch_tokens": tokens, "max_grad_norm": 1e9}
    given = TrainerInputs(
        policy=tiny_lora(model),
        tokenizer=load_tokenizer(model),
        samples=samples,
        folder=folder,
        seed=0,
        temperature=1.0,
        learning_rate=1e-4,
        on_gpu=False,
        callbacks=(catch,),
    )
    algorithm.trainer(given, knobs.model_copy(update=one_step)).train()
    return catch.gradients


def test_only_sampled_tokens_are_learned_from_with_the_advantage_of_their_rollout(
    base_model: Path, tmp_path: Path, rollouts: list[TrainingSample]
) -> None:
    samples, knobs = off(rollouts), GrpoHyperparameters(clip_low=0.2, clip_high=0.28)

    found = gradient(base_model, tmp_path, samples, Grpo(), knobs, 10_000)

    policy = tiny_lora(base_model)
    scores = [[one.score for one in samples if one.group == group] for group in range(len(GROUPS))]
    weights = advantage_targets(scores, knobs.scale, knobs.negative_weight).weights
    losses = []
    for sample, weight in zip(samples, weights, strict=True):
        ids = torch.tensor([[*sample.prompt, *sample.completion]])
        logits = policy(input_ids=ids).logits[0, len(sample.prompt) - 1 : -1]
        new = torch.log_softmax(logits, -1).gather(1, torch.tensor(list(sample.completion))[:, None])[:, 0]
        ratio = (new - torch.tensor(sample.logprobs)).exp()[torch.tensor(sample.sampled, dtype=torch.bool)]
        losses.append(-torch.minimum(ratio.clamp(max=4.0) * weight, ratio.clamp(0.8, 1.28) * weight).sum())
    (torch.stack(losses).sum() / sum(sample.tokens for sample in samples)).backward()  # type: ignore[no-untyped-call]
    assert_same(found, gradients_of(policy))


@pytest.mark.parametrize(
    ("algorithm", "knobs", "cuts"),
    [
        (Grpo(), GrpoHyperparameters(), (1,)),
        (Grpo(), GrpoHyperparameters(), (2,)),
        (Grpo(), GrpoHyperparameters(beta=0.3), (1, 2)),
        (Grpo(), GrpoHyperparameters(loss="dr_grpo"), (1, 2)),
        (Grpo(), GrpoHyperparameters(loss="cispo"), (1, 2)),
        (WeightedSft(), WeightedSftHyperparameters(), (1, 2)),
    ],
    ids=["dapo after one", "dapo after two", "dapo with kl", "dr_grpo", "cispo", "weighted-sft"],
)
def test_splitting_a_linear_rollout_at_any_turn_leaves_the_gradient_as_it_was(
    base_model: Path,
    tmp_path: Path,
    rollouts: list[TrainingSample],
    algorithm: Any,
    knobs: Hyperparameters,
    cuts: Sequence[int],
) -> None:
    samples = off(rollouts)
    pieces = [piece for sample in samples for piece in split(sample, cuts)]
    assert len(pieces) == len(samples) * (len(cuts) + 1)

    whole = gradient(base_model, tmp_path / "whole", samples, algorithm, knobs, 10_000)
    in_pieces = gradient(base_model, tmp_path / "pieces", pieces, algorithm, knobs, 60)

    assert_same(in_pieces, whole)


def test_each_row_finds_its_own_log_probabilities(base_model: Path, rollouts: list[TrainingSample]) -> None:
    pieces = [piece for sample in rollouts for piece in split(sample, (1,))]

    ratios = sample_ratios(tiny_lora(base_model), [*rollouts, *pieces], temperature=1.0)

    assert max(ratio.gap / ratio.tokens for ratio in ratios) < 1e-4
    assert sum(ratio.tokens for ratio in ratios) == 2 * sum(sample.tokens for sample in rollouts)


@pytest.mark.parametrize("loss", ["gspo", "vespo"])
def test_a_loss_of_whole_answers_takes_rollouts_of_one_segment_only(
    base_model: Path, tmp_path: Path, rollouts: list[TrainingSample], loss: Any
) -> None:
    knobs = GrpoHyperparameters(loss=loss)
    pieces = [piece for sample in rollouts for piece in split(sample, (1,))]

    assert gradient(base_model, tmp_path, rollouts, Grpo(), knobs, 10_000)
    with pytest.raises(TrainingRefused, match=r"5 of the 5 rollouts have several segments: take dapo"):
        gradient(base_model, tmp_path, pieces, Grpo(), knobs, 10_000)


def test_what_compares_whole_answers_refuses_conversations(
    base_model: Path, tmp_path: Path, rollouts: list[TrainingSample]
) -> None:
    with pytest.raises(TrainingRefused, match=r"5 segments of conversations, .* take grpo"):
        gradient(base_model, tmp_path, rollouts, Kto(), KtoHyperparameters(), 10_000)
