"""Advantages: the figures of small groups, and what holds for all."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.logs.groups import Baseline, deviation, peers, widest_range
from services.trainer.algorithms.advantages import Scale, advantages_among, group_advantages, temper

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
    found = temper(advantages, weight)

    assert [new for new, old in zip(found, advantages, strict=True) if old > 0] == [a for a in advantages if a > 0]
    assert [new for new, old in zip(found, advantages, strict=True) if old <= 0] == [
        advantage * weight for advantage in advantages if advantage <= 0
    ]
    by_score = [new for _, new in sorted(zip(scores, found, strict=True))]
    assert by_score == sorted(by_score)


PROGRAMS = ("aider", "shell", "aider", "shell", "aider", "tool")


@pytest.mark.parametrize(
    ("baseline", "scale", "advantages"),
    [
        # aider 0.9, 0.6, 0.9: mean 0.8; shell 0.1, 0.3: mean 0.2; tool 0.5 alone
        ("program", "none", (0.1, -0.1, -0.2, 0.1, 0.1, 0.0)),
        ("program", "group", (0.57702, -0.70661, -1.15403, 0.70661, 0.57702, 0.0)),  # 0.17321 and 0.14142, each + 1e-4
        ("group", "none", (0.35, -0.45, 0.05, -0.25, 0.35, -0.05)),  # of all: 0.55
    ],
)
def test_a_rollout_is_compared_with_its_programs_own_or_with_all(
    baseline: Baseline, scale: Scale, advantages: tuple[float, ...]
) -> None:
    scores = (0.9, 0.1, 0.6, 0.3, 0.9, 0.5)

    assert advantages_among(scores, peers(PROGRAMS, baseline), scale) == pytest.approx(advantages, abs=1e-4)


MIXED = st.lists(st.tuples(st.floats(0, 1), st.sampled_from(("aider", "shell", None))), min_size=2, max_size=16)


@given(MIXED, st.floats(0.05, 1), st.sampled_from(("group", "none")))
def test_what_one_program_is_paid_more_for_every_task_changes_no_advantage_by_program(
    samples: list[tuple[float, str | None]], offset: float, scale: Scale
) -> None:
    scores, programs = [score for score, _ in samples], [program for _, program in samples]
    paid_more = [score + offset * (program == "aider") for score, program in samples]

    def advantages(of: list[float], baseline: Baseline) -> list[float]:
        return advantages_among(of, peers(programs, baseline), scale)

    assert advantages(paid_more, "program") == pytest.approx(advantages(scores, "program"), abs=1e-6)
    if 0 < programs.count("aider") < len(programs) and scale == "none":
        moved = zip(advantages(paid_more, "group"), advantages(scores, "group"), strict=True)
        assert all(abs(one - other) > 1e-3 for one, other in moved)


@given(SCORES, st.sampled_from(("group", "none")))
def test_of_one_program_it_is_the_group(scores: list[float], scale: Scale) -> None:
    one = ["aider"] * len(scores)

    assert advantages_among(scores, peers(one, "program"), scale) == group_advantages(scores, scale)


def test_spread_is_within_programs() -> None:
    sets = peers(PROGRAMS, "program")

    assert sets == [[0, 2, 4], [1, 3], [5]]
    assert widest_range((0.9, 0.1, 0.9, 0.1, 0.9, 0.5), sets) == 0
    assert widest_range((0.9, 0.1, 0.7, 0.4, 0.9, 0.5), sets) == pytest.approx(0.3)
    assert deviation((0.8, 0.1, 0.6, 0.1, 0.7, 0.5), sets) == pytest.approx(math.sqrt(0.02 / 6))
