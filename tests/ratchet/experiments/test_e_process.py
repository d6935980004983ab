"""The e-processes keep their promise: checked exactly, over every path of small discrete worlds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.experiments.e_process import FRACTIONS, LARGEST, WEIGHTS, BettingProcess, SampleRatioCheck, log_mean
from ratchet.experiments.effect import EffectTest, HarmTest
from tests.quick import rounds

OUTCOMES = (0.0, 0.3, 1.0)
Law = tuple[float, float, float]
"""Probabilities of the three outcomes."""

shares = st.floats(0.02, 0.98)


@st.composite
def laws(draw: st.DrawFn) -> Law:
    a, b, c = (draw(st.floats(0.01, 1.0)) for _ in range(3))
    return a / (a + b + c), b / (a + b + c), c / (a + b + c)


def worse(law: Law, by: float) -> Law:
    """Moves up to `by` of the probability from the best outcome to the worst: the mean falls by as much."""
    moved = min(by, law[2])
    return law[0] + moved, law[1], law[2] - moved


def paths(candidate: Law, primary: Law, units: list[float]) -> Iterator[tuple[float, list[tuple[bool, float]]]]:
    """Every sequence of arms and outcomes, with its probability, at the given shares of the candidate."""
    choices = list(itertools.product((True, False), range(3)))
    for path in itertools.product(choices, repeat=len(units)):
        probability = 1.0
        for share, (is_candidate, outcome) in zip(units, path, strict=True):
            law = candidate if is_candidate else primary
            probability *= (share if is_candidate else 1 - share) * law[outcome]
        yield probability, [(is_candidate, OUTCOMES[outcome]) for is_candidate, outcome in path]


def expectation(test: Callable[[], HarmTest], candidate: Law, primary: Law, units: list[float]) -> tuple[float, float]:
    """Exact expectations of the e-values for gain (1 where there is none) and harm after all units."""
    gain = harm = 0.0
    for probability, path in paths(candidate, primary, units):
        one = test()
        for share, (is_candidate, y) in zip(units, path, strict=True):
            one.observe(y, is_candidate=is_candidate, share=share, stratum="")
        gain += probability * (one.gain.e if isinstance(one, EffectTest) else 1.0)
        harm += probability * one.harm.e
    return gain, harm


@settings(max_examples=rounds(40))
@given(
    law=laws(), units=st.lists(shares, min_size=1, max_size=3), margin=st.floats(0, 0.2), tolerance=st.floats(0, 0.2)
)
def test_with_no_effect_no_e_value_is_expected_to_grow(
    law: Law, units: list[float], margin: float, tolerance: float
) -> None:
    gain, harm = expectation(lambda: EffectTest(margin=margin, tolerance=tolerance), law, law, units)

    assert gain <= 1 + 1e-9
    assert harm <= 1 + 1e-9


@settings(max_examples=rounds(40))
@given(law=laws(), units=st.lists(shares, min_size=1, max_size=3), margin=st.floats(0.01, 0.3))
def test_a_loss_of_just_the_margin_is_not_expected_to_pass_as_not_inferior(
    law: Law, units: list[float], margin: float
) -> None:
    law = (law[0] * (1 - margin), law[1] * (1 - margin), law[2] * (1 - margin) + margin)

    gain, _ = expectation(lambda: EffectTest(margin=-margin, tolerance=0.0), worse(law, margin), law, units)

    assert gain == pytest.approx(1.0)


@settings(max_examples=rounds(40))
@given(law=laws(), units=st.lists(shares, min_size=1, max_size=3), tolerance=st.floats(0, 0.3))
def test_a_loss_within_the_tolerance_is_not_expected_to_pass_as_harm(
    law: Law, units: list[float], tolerance: float
) -> None:
    _, harm = expectation(lambda: HarmTest(tolerance), worse(law, tolerance), law, units)

    assert harm <= 1 + 1e-9


def test_a_real_effect_is_expected_to_make_it_grow() -> None:
    better, primary = (0.1, 0.1, 0.8), (0.5, 0.2, 0.3)

    gain, _ = expectation(lambda: EffectTest(margin=0.0, tolerance=0.0), better, primary, [0.5, 0.5, 0.5])
    _, harm = expectation(lambda: HarmTest(0.0), primary, better, [0.5, 0.5, 0.5])

    assert gain > 1.1
    assert harm > 1.1


@given(y=st.floats(0, 1), m=st.floats(0, 1), share=shares, is_candidate=st.booleans())
def test_no_unit_takes_more_than_was_staked(y: float, m: float, share: float, is_candidate: bool) -> None:
    test = EffectTest(margin=0.0, tolerance=0.0)
    for _ in range(3):
        test.observe(m, is_candidate=not is_candidate, share=share, stratum="")
    before = test.gain.log_e, test.harm.log_e

    test.observe(y, is_candidate=is_candidate, share=share, stratum="")

    floor = math.log1p(-max(FRACTIONS)) - 1e-9
    assert test.gain.log_e - before[0] >= floor
    assert test.harm.log_e - before[1] >= floor


@given(units=st.lists(shares, min_size=1, max_size=6))
def test_the_sample_ratio_check_is_fair_to_the_logged_shares(units: list[float]) -> None:
    expected = 0.0
    for arms in itertools.product((True, False), repeat=len(units)):
        check, probability = SampleRatioCheck(), 1.0
        for share, is_candidate in zip(units, arms, strict=True):
            check.observe(is_candidate=is_candidate, share=share)
            probability *= share if is_candidate else 1 - share
        expected += probability * check.e

    assert expected == pytest.approx(1.0)


def test_the_sample_ratio_check_finds_a_lost_third_of_the_candidates() -> None:
    check = SampleRatioCheck()

    for unit in range(600):
        check.observe(is_candidate=unit % 5 < 2, share=0.5)

    assert check.e > 1000


def test_wealth_is_split_over_bets_below_one() -> None:
    assert sum(WEIGHTS) == pytest.approx(1.0)
    assert all(0 < fraction < 1 for fraction in FRACTIONS)


def test_a_million_to_the_millionth_is_still_a_number() -> None:
    process = BettingProcess()

    for _ in range(5000):
        process.bet(1.0, 1.0)

    assert process.e == LARGEST
    assert process.log_e == pytest.approx(5000 * math.log1p(max(FRACTIONS)) + math.log(0.5))


def test_lost_bets_leave_a_little_and_never_less_than_nothing() -> None:
    process = BettingProcess()

    for _ in range(50_000):
        process.bet(-1.0, 1.0)

    assert process.e == 0.0
    assert process.log_e == pytest.approx(50_000 * math.log1p(-min(FRACTIONS)) + math.log(1 / 8))


def test_log_mean_is_the_log_of_the_mean() -> None:
    assert log_mean([math.log(2), math.log(4)], [0.5, 0.5]) == pytest.approx(math.log(3))
    assert log_mean([-5000.0, -5001.0], [0.5, 0.5]) == pytest.approx(-5000 + math.log((1 + math.exp(-1)) / 2))
