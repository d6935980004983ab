"""Advantages: the figures of small groups, and what holds for all."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.trainer.algorithms.advantages import Scale, group_advantages, tempered

SCORES = st.lists(st.floats(0, 1), min_size=2, max_size=16)


@pytest.mark.parametrize(
    ("scores", "scale", "advantages"),
    [
        ((0.0, 1.0), "none", (-0.5, 0.5)),
        ((0.2, 0.2, 0.8), "none", (-0.2, -0.2, 0.4)),
        ((0.0, 1.0), "group", (-0.70701, 0.70701)),  # 0.5 / (sqrt(0.5) + 1e-4)
        ((0.0, 0.0, 0.0, 1.0), "group", (-0.49990, -0.49990, -0.49990, 1.49970)),  # deviation 0.5
        ((0.3, 0.3), "group", (0.0, 0.0)),
    ],
)
def test_figures(scores: tuple[float, ...], scale: Scale, advantages: tuple[float, ...]) -> None:
    assert group_advantages(scores, scale) == pytest.approx(advantages, abs=1e-5)


def test_one_score_has_nothing_to_compare() -> None:
    with pytest.raises(ValueError, match="nothing to compare"):
        group_advantages((1.0,), "group")


@given(SCORES, st.sampled_from(("group", "none")))
def test_they_sum_to_zero_and_keep_the_order_of_the_scores(scores: list[float], scale: Scale) -> None:
    advantages = group_advantages(scores, scale)

    assert math.fsum(advantages) == pytest.approx(0, abs=1e-6)
    by_score = [advantage for _, advantage in sorted(zip(scores, advantages, strict=True))]
    assert by_score == sorted(by_score)


@given(SCORES)
def test_scaled_ones_have_a_deviation_of_at_most_one(scores: list[float]) -> None:
    assert statistics.stdev(group_advantages(scores, "group")) <= 1 + 1e-9


@given(SCORES, st.floats(0, 1))
def test_tempered_ones_keep_the_order_and_the_good_answers_as_they_were(scores: list[float], weight: float) -> None:
    advantages = group_advantages(scores, "group")
    found = tempered(advantages, weight)

    assert [new for new, old in zip(found, advantages, strict=True) if old > 0] == [a for a in advantages if a > 0]
    assert [new for new, old in zip(found, advantages, strict=True) if old <= 0] == [
        advantage * weight for advantage in advantages if advantage <= 0
    ]
    by_score = [new for _, new in sorted(zip(scores, found, strict=True))]
    assert by_score == sorted(by_score)
