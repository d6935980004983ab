"""Whether the data support a step: the figures and the verdicts."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.trainer.data.support import Limits, PolicyMatch, SampleRatio, match_of, policy_faults

LIMITS = Limits(min_groups=8, max_bad_share=0.01, max_gap=0.05, min_effective_share=0.3, weight_range=(0.5, 2.0))
GOOD = PolicyMatch(samples=100, gap=0.001, effective_share=0.9, mean_weight=1.02)


def ratio(log_weight: float, *, gap: float = 0.0, tokens: int = 10, own: bool = True) -> SampleRatio:
    return SampleRatio(log_weight, gap, tokens, own)


def test_equal_weights_are_worth_all_samples() -> None:
    match = match_of([ratio(0.0)] * 8)

    assert (match.effective_share, match.mean_weight) == pytest.approx((1, 1))


def test_one_heavy_sample_is_worth_one() -> None:
    match = match_of([ratio(50.0), *[ratio(0.0)] * 9])

    assert match.effective_share == pytest.approx(0.1)


def test_the_figures_by_hand() -> None:
    match = match_of([ratio(math.log(3.0)), ratio(0.0)])

    assert match.mean_weight == pytest.approx(2.0)
    assert match.effective_share == pytest.approx(4**2 / (3**2 + 1) / 2)


def test_the_gap_is_per_token_and_only_over_the_policys_own_samples() -> None:
    match = match_of([ratio(0, gap=1.0, tokens=10), ratio(0, gap=1.0, tokens=30), ratio(0, gap=99.0, own=False)])

    assert match.gap == pytest.approx(2.0 / 40)
    assert match_of([ratio(0, own=False)]).gap is None


def test_weights_beyond_all_floats_are_no_error() -> None:
    match = match_of([ratio(5000.0), ratio(-5000.0)])

    assert match.effective_share == pytest.approx(0.5)
    assert match.mean_weight > 1e300


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=50), st.floats(-5, 5))
def test_the_effective_share_lies_between_one_sample_and_all_and_knows_no_scale(
    log_weights: list[float], shift: float
) -> None:
    share = match_of([ratio(value) for value in log_weights]).effective_share

    assert 1 / len(log_weights) - 1e-9 <= share <= 1 + 1e-9
    assert match_of([ratio(value + shift) for value in log_weights]).effective_share == pytest.approx(share)


@pytest.mark.parametrize(
    ("match", "fault"),
    [
        (GOOD, None),
        (replace(GOOD, gap=None), None),
        (replace(GOOD, gap=0.06), "differ by 0.0600 nats a token on average, 0.05 at most"),
        (replace(GOOD, gap=math.nan), "differ by nan"),
        (replace(GOOD, effective_share=0.29), r"100 samples are worth only 29 .* \(0.29 of them, 0.3 are needed\)"),
        (replace(GOOD, mean_weight=0.49), "mean importance weight is 0.49, 0.5 to 2"),
        (replace(GOOD, mean_weight=2.01), "mean importance weight is 2.01"),
        (replace(GOOD, mean_weight=math.nan), "mean importance weight is nan"),
    ],
)
def test_a_match_is_in_order_or_its_fault_is_named(match: PolicyMatch, fault: str | None) -> None:
    faults = list(policy_faults(match, LIMITS))

    assert len(faults) == (fault is not None)
    assert fault is None or re.search(fault, faults[0])
