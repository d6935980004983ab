"""TRL's KTO on a plan, held against the formula of the paper written out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from ratchet.service.errors import TrainingRefused
from services.trainer.algorithms.hyperparameters import KtoHyperparameters
from services.trainer.algorithms.preferences import Kto
from services.trainer.data.samples import TrainingSample
from tests.services.trainer.algorithms.test_logged_trainer import (
    Bench,
    Catch,
    assert_same,
    bench,
    gradients_of,
    log_probability,
)

__all__ = ["bench"]

MOVED = 0.02
"""So far the policy is from its reference when the step is taken."""


def move(policy: Any) -> None:
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if ".default." in name:
                parameter.add_(MOVED)


def one_step(bench: Bench, algorithm: Any, knobs: Any, micro_batch: int) -> Catch:
    """The gradient of a step by a policy that is no longer its reference."""
    catch = Catch()
    trainer = bench.trainer(algorithm, knobs, micro_batch, (catch,))
    move(trainer.model)
    trainer.train()
    return catch


def log_ratios(bench: Bench, samples: list[TrainingSample], policy: Any) -> torch.Tensor:
    """log(new / reference) of whole answers."""
    reference = bench.policy()
    with torch.no_grad():
        before = [log_probability(reference, sample).sum() for sample in samples]
    return torch.stack([log_probability(policy, one).sum() - old for one, old in zip(samples, before, strict=True)])


@pytest.mark.parametrize("micro_batch", [14, 3], ids=["at once", "in pieces"])
def test_kto_takes_each_answer_by_itself_and_good_ones_weigh_as_much_as_bad_ones(
    bench: Bench, micro_batch: int
) -> None:
    threshold = sorted(sample.score for sample in bench.samples)[-4]
    knobs = KtoHyperparameters(threshold=threshold, beta=0.3, max_grad_norm=1e9)

    catch = one_step(bench, Kto(), knobs, micro_batch)

    good = sum(sample.score >= threshold for sample in bench.samples)
    bad = len(bench.samples) - good
    policy, losses = bench.policy(), []
    move(policy)
    for part in bench.trainer(Kto(), knobs, micro_batch).plan.micro_batches:
        samples = [bench.samples[number] for number in part.samples]
        # the baseline: how much likelier answers to other tasks have become
        strangers = [replace(one, completion=other.completion) for one, other in with_others(samples)]
        baseline = log_ratios(bench, strangers, policy).mean().detach().clamp(min=0)
        ratios = log_ratios(bench, samples, policy)
        for sample, ratio in zip(samples, ratios, strict=True):
            if sample.score >= threshold:
                losses.append(max(1.0, bad / good) * (1 - torch.sigmoid(0.3 * (ratio - baseline))))
            else:
                losses.append(max(1.0, good / bad) * (1 - torch.sigmoid(0.3 * (baseline - ratio))))
    torch.stack(losses).mean().backward()  # type: ignore[no-untyped-call]
    assert_same(catch.gradients, gradients_of(policy))


def with_others(samples: list[TrainingSample]) -> list[tuple[TrainingSample, TrainingSample]]:
    """Each with the next one that answers another task, around the end; the next one where there is none."""
    turned = [[*samples[index + 1 :], *samples[:index]] for index in range(len(samples))]
    return [
        (one, next((other for other in others if other.group != one.group), (others or [one])[0]))
        for one, others in zip(samples, turned, strict=True)
    ]


def test_kto_needs_no_second_answer_where_a_thumb_says_what_is_good(bench: Bench) -> None:
    alone = [replace(sample, group=number) for number, sample in enumerate(bench.samples)]
    singles = replace(bench, samples=alone)

    trainer = singles.trainer(Kto(), KtoHyperparameters(threshold=0.5), 14)

    assert len(trainer.answers) == len(alone)


@pytest.mark.parametrize("threshold", [1e-6, 1.0])
def test_kto_refuses_a_log_without_good_or_without_bad_answers(bench: Bench, threshold: float) -> None:
    same = replace(bench, samples=[replace(sample, score=0.5) for sample in bench.samples])

    with pytest.raises(TrainingRefused, match=r"KTO needs good and bad answers, and has (0|14) good"):
        same.trainer(Kto(), KtoHyperparameters(threshold=threshold), 14)
