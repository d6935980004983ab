"""Samples held against a policy: it finds its own log-probabilities in the log, and those of others are weighed."""

from __future__ import annotations

import math
import random
from array import array
from pathlib import Path

import pytest
import torch

from ratchet.models.loading import load_language_model
from ratchet.service.errors import TrainingRefused
from services.trainer.algorithms.hyperparameters import Hyperparameters
from services.trainer.algorithms.policy import make_policy, sample_ratios
from services.trainer.data.samples import TrainingSample
from services.trainer.data.support import PolicyMatch, match_of
from tests.services.trainer.tiny_policy import tiny_lora, training_samples

SIZES = (2, 5, 3, 4)


def match(model: Path, samples: list[TrainingSample]) -> PolicyMatch:
    return match_of(sample_ratios(tiny_lora(model), samples, temperature=1.0), "v1.0.1")


def test_a_policy_finds_its_own_log_probabilities_and_not_those_of_another(base_model: Path) -> None:
    own = match(base_model, training_samples(tiny_lora(base_model), SIZES, seed=5))
    off = match(base_model, training_samples(tiny_lora(base_model), SIZES, seed=5, off=0.6))

    assert own.gap == pytest.approx(0, abs=1e-5)
    assert (own.effective_share, own.mean_weight) == pytest.approx((1, 1), abs=1e-4)
    assert off.gap == pytest.approx(0.3, abs=0.06)  # the mean of |uniform(-0.6, 0.6)|
    assert off.effective_share == pytest.approx(0.895, abs=0.04)
    assert own.divergence == pytest.approx(0, abs=1e-6)
    assert off.divergence == pytest.approx(0.061, abs=0.02)


def test_importance_weights_are_those_of_tokens(base_model: Path) -> None:
    rng = random.Random(2)
    samples = training_samples(tiny_lora(base_model), SIZES, seed=5)
    shifts = {id(sample): rng.uniform(-0.3, 0.3) for sample in samples}
    for sample in samples:
        for place in range(len(sample.logprobs)):
            sample.logprobs[place] -= shifts[id(sample)]

    policy = tiny_lora(base_model)
    ratios = sample_ratios(policy, samples, temperature=1.0)

    assert policy.training
    for ratio, sample in zip(ratios, samples, strict=True):
        weight = math.exp(shifts[id(sample)])
        assert (ratio.version, ratio.tokens) == (sample.version, len(sample.completion))
        assert ratio.weights / ratio.tokens == pytest.approx(weight, abs=1e-4)
        assert ratio.squares / ratio.tokens == pytest.approx(weight**2, abs=1e-4)


def test_what_samples_have_in_common_goes_through_once(base_model: Path) -> None:
    """70 tokens before every question, and one answer that was given twice."""
    policy = tiny_lora(base_model)
    torch.manual_seed(1)
    samples = []
    for question, answer in ((60, [1, 2, 3]), (60, [1, 2, 3]), (61, [1, 2, 3]), (61, [7]), (62, [5, 9])):
        prompt = [*range(70), question, 9][: 72 if question == 62 else 71]
        ids = torch.tensor([[*prompt, *answer]])
        with torch.no_grad():
            logps = policy(input_ids=ids).logits[0].log_softmax(-1)[len(prompt) - 1 : -1]
        own = logps.gather(1, ids[0, len(prompt) :, None])[:, 0].tolist()
        samples.append(TrainingSample(0, "v", 0.5, array("l", prompt), array("l", answer), array("f", own)))
    passes: list[tuple[int, int]] = []
    policy.register_forward_pre_hook(lambda _, args, given: passes.append(given["input_ids"].shape), with_kwargs=True)

    ratios = sample_ratios(policy, samples, temperature=1.0)

    assert passes == [(1, 70), (4, 4)]
    assert [ratio.tokens for ratio in ratios] == [3, 3, 3, 1, 2]
    assert max(ratio.gap for ratio in ratios) < 1e-4


def test_a_first_adapter_has_the_layers_the_rank_and_the_scale_it_was_asked_for(base_model: Path) -> None:
    knobs = Hyperparameters(lora_targets=["q_proj", "down_proj"], lora_rslora=True, lora_rank=64)

    policy = make_policy(load_language_model(str(base_model), device="cpu"), None, knobs, seed=0, max_rank=64)

    config = policy.peft_config["default"]
    assert (config.target_modules, config.use_rslora, config.r) == ({"q_proj", "down_proj"}, True, 64)
    assert {name.split(".")[-4] for name, _ in policy.named_parameters() if "lora_A" in name} == {"q_proj", "down_proj"}


def test_layers_that_no_engine_adapts_are_refused(base_model: Path) -> None:
    with pytest.raises(TrainingRefused, match="lora_targets has embed_tokens, lm_head, which the engines don't know"):
        make_policy(
            load_language_model(str(base_model), device="cpu"),
            None,
            Hyperparameters(lora_targets=["lm_head", "q_proj", "embed_tokens"]),
            seed=0,
            max_rank=64,
        )
