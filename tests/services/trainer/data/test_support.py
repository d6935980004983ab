"""Whether the data support a step: the figures and the verdicts."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.trainer.data.support import (
    Limits,
    PolicyMatch,
    SampleRatio,
    match_of,
    policy_faults,
    ratio_of,
    too_different,
    version_faults,
)

OWN, OTHER = "v1.0.1", "v1.0.2"
LIMITS = Limits(
    min_groups=8,
    max_bad_share=0.01,
    max_gap=0.05,
    min_effective_share=0.3,
    weight_range=(0.5, 2.0),
    max_divergence=0.1,
)
GOOD = PolicyMatch(samples=100, gap=0.001, effective_share=0.9, mean_weight=1.02, divergence=0.01)
LOG_WEIGHTS = st.lists(st.floats(-19, 19), min_size=1, max_size=50)


def test_equal_weights_are_worth_all_samples() -> None:
    match = match_of([ratio_of(OWN, [0.0, 0.0])] * 8, OWN)

    assert (match.effective_share, match.mean_weight, match.divergence) == pytest.approx((1, 1, 0))


def test_one_heavy_token_is_worth_one() -> None:
    match = match_of([ratio_of(OWN, [15.0, *[0.0] * 4]), ratio_of(OWN, [0.0] * 5)], OWN)

    assert match.effective_share == pytest.approx(0.1, abs=1e-4)


def test_the_figures_by_hand() -> None:
    match = match_of([ratio_of(OWN, [math.log(3.0)]), ratio_of(OWN, [0.0])], OWN)

    assert match.mean_weight == pytest.approx(2.0)
    assert match.effective_share == pytest.approx(4**2 / (3**2 + 1) / 2)
    assert match.divergence == pytest.approx((2.0 - math.log(3.0)) / 2)


def test_the_gap_is_per_token_and_only_over_the_policys_own_samples() -> None:
    ratios = [ratio_of(OWN, [0.1] * 10), ratio_of(OWN, [-1 / 30] * 30), ratio_of(OTHER, [9.0])]

    assert match_of(ratios, OWN).gap == pytest.approx(2.0 / 40)
    assert match_of([ratio_of(OTHER, [0.0])], OWN).gap is None


def test_weights_beyond_all_floats_are_no_error() -> None:
    match = match_of([ratio_of(OWN, [5000.0]), ratio_of(OWN, [-5000.0])], OWN)

    assert match.effective_share == pytest.approx(0.5)
    assert match.mean_weight > 1e8


@given(LOG_WEIGHTS)
def test_the_effective_share_lies_between_one_token_and_all_and_the_divergence_above_nothing(
    log_weights: list[float],
) -> None:
    match = match_of([ratio_of(OWN, log_weights)], OWN)

    assert 1 / len(log_weights) - 1e-9 <= match.effective_share <= 1 + 1e-9
    assert match.divergence >= -1e-12


@pytest.mark.parametrize(
    ("match", "fault"),
    [
        (GOOD, None),
        (replace(GOOD, gap=None), None),
        (replace(GOOD, gap=0.06), "differ by 0.0600 nats a token on average, 0.05 at most"),
        (replace(GOOD, gap=math.nan), "differ by nan"),
        (replace(GOOD, effective_share=0.29), r"tokens of 100 samples are worth only 0.29 of .* 0.3 is needed"),
        (replace(GOOD, mean_weight=0.49), "mean weight of a token is 0.49, 0.5 to 2"),
        (replace(GOOD, mean_weight=2.01), "mean weight of a token is 2.01"),
        (replace(GOOD, mean_weight=math.nan), "mean weight of a token is nan"),
        (replace(GOOD, divergence=0.11), "diverge by 0.11 nats a token, 0.1 at most"),
    ],
)
def test_a_match_is_in_order_or_its_fault_is_named(match: PolicyMatch, fault: str | None) -> None:
    faults = list(policy_faults(match, LIMITS))

    assert len(faults) == (fault is not None)
    assert fault is None or re.search(fault, faults[0])


Logged = Callable[[random.Random], float]


def by_rounding_alone(s: float) -> Logged:
    """The same policy; engine and trainer compute each log-probability s apart."""
    return lambda rng: rng.gauss(0.0, s)


def by_another_policy(divergence: float) -> Logged:
    """Log-normal weights of mean 1 whose KL divergence is that many nats a token."""
    spread = math.sqrt(2 * divergence)
    return lambda rng: rng.gauss(-divergence, spread)


def by_another_policy_where_it_chooses(divergence: float) -> Logged:
    """One token in ten is a choice, and on those the policies differ; the others follow from them."""
    choice = by_another_policy(10 * divergence)
    return lambda rng: choice(rng) if rng.random() < 0.1 else 0.0


def sampled(version: str, logged: Logged, length: int, samples: int) -> list[SampleRatio]:
    rng = random.Random(7)
    return [ratio_of(version, (logged(rng) for _ in range(length))) for _ in range(samples)]


@pytest.mark.parametrize("length", [20, 480, 8_000])
def test_long_answers_of_ones_own_are_not_refused_for_rounding(length: int) -> None:
    """vLLM against a trainer in bfloat16 is 0.05 apart; whole sequences of 8,000 tokens would be worth exp(-20)."""
    match = match_of(sampled(OWN, by_rounding_alone(0.05), length, 24), OWN)

    assert list(policy_faults(match, LIMITS)) == []
    assert match.effective_share > 0.99


def test_an_own_log_that_is_too_far_off_is_a_question_of_number_formats_not_of_freshness() -> None:
    match = match_of(sampled(OWN, by_rounding_alone(0.5), 8_000, 24), OWN)

    (fault,) = policy_faults(match, LIMITS)
    assert "does not find its own log-probabilities" in fault and "number format" in fault
    assert "fresher" not in fault


@pytest.mark.parametrize("other", [by_another_policy, by_another_policy_where_it_chooses])
@pytest.mark.parametrize("length", [20, 8_000])
def test_another_policys_answers_teach_only_as_far_as_it_is_near(other: Callable[[float], Logged], length: int) -> None:
    own = sampled(OWN, by_rounding_alone(0.05), length, 24)
    samples = 80_000 // length

    def strangers(divergence: float) -> dict[str, str]:
        return too_different([*own, *sampled(OTHER, other(divergence), length, samples)], OWN, LIMITS)

    assert strangers(0.03) == {}
    far = strangers(0.3)
    assert far.keys() == {OTHER}
    (fault,) = version_faults(far)
    assert f"the samples of {OTHER} are by too different a policy (the policies diverge by 0." in fault
    assert fault.endswith("take fresher data")
