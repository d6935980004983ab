"""Samples held against a policy: it finds its own log-probabilities in the log, and those of others are weighed."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from services.trainer.algorithms.policy import sample_ratios
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
    by_length = sorted(samples, key=lambda sample: sample.length)
    for ratio, sample in zip(ratios, by_length, strict=True):
        weight = math.exp(shifts[id(sample)])
        assert (ratio.version, ratio.tokens) == (sample.version, len(sample.completion))
        assert ratio.weights / ratio.tokens == pytest.approx(weight, abs=1e-4)
        assert ratio.squares / ratio.tokens == pytest.approx(weight**2, abs=1e-4)
