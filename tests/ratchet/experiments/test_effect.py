"""Contrasts are unbiased and bounded; strata are bounded; sizes are relative to what is usual."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.experiments.effect import (
    FIRST_SIZES,
    LARGEST_SIZE,
    MAX_STRATA,
    EffectTest,
    HarmTest,
    PooledMeans,
    Relative,
    SizeTest,
    StratumMeans,
    contrast,
)

unit_interval = st.floats(0, 1)
shares = st.floats(0.01, 0.99)


@given(one=unit_interval, other=unit_interval, m=unit_interval, share=shares)
def test_a_contrast_is_unbiased_whatever_the_mean_and_the_share(
    one: float, other: float, m: float, share: float
) -> None:
    candidate = contrast(one, m, (m, m), share, is_candidate=True).x
    primary = contrast(other, m, (m, m), share, is_candidate=False).x

    assert share * candidate + (1 - share) * primary == pytest.approx(one - other, abs=1e-9)


@given(y=unit_interval, m=unit_interval, share=shares, is_candidate=st.booleans())
def test_a_contrast_lies_within_its_bounds(y: float, m: float, share: float, is_candidate: bool) -> None:
    unit = contrast(y, m, (m, m), share, is_candidate=is_candidate)

    assert -unit.loss - 1e-9 <= unit.x <= unit.gain + 1e-9


def test_a_unit_without_a_measurement_says_nothing_for_either_side() -> None:
    test = HarmTest(tolerance=0.02)
    test.observe(0.9, is_candidate=False, share=0.5, stratum="a")
    before = test.harm.e

    unit = test.observe(None, is_candidate=True, share=0.5, stratum="a")

    assert unit.x == 0.0
    assert 0.9 * before < test.harm.e < before


def test_the_mean_of_a_stratum_starts_at_the_prior_and_knows_its_own_outcomes_only() -> None:
    means = StratumMeans(prior=0.5)

    means.add("easy", 1.0)

    assert means.mean("easy") == 0.75
    assert means.mean("hard") == 0.5
    assert (means.count("easy"), means.count("hard")) == (2, 1)


def test_strata_beyond_the_limit_share_one() -> None:
    means = StratumMeans(prior=0.5)
    for index in range(MAX_STRATA):
        means.add(f"type-{index}", 0.0)

    means.add("one-more", 1.0)
    means.add("and-another", 1.0)

    assert means.mean("one-more") == means.mean("and-another") == pytest.approx(2.5 / 3)
    assert means.mean("type-0") == 0.25


def test_a_size_is_relative_to_the_primary_s_earlier_sizes() -> None:
    relative = Relative(prior=100.0)

    usual = relative.scale(100.0, is_candidate=False, stratum="a")
    longer = relative.scale(300.0, is_candidate=True, stratum="a")

    assert usual == 0.5
    assert longer == 0.25
    assert relative.scale(100.0, is_candidate=True, stratum="a") == 0.5
    assert relative.scale(None, is_candidate=True, stratum="a") is None


def test_a_size_that_is_measured_in_neither_arm_has_no_limit_to_prove() -> None:
    test = SizeTest(limit=1.3, tolerance=1.2)
    for is_candidate in (True, False):
        test.observe(None, is_candidate=is_candidate, share=0.5, stratum="")
    assert test.kept is None

    test.observe(50.0, is_candidate=True, share=0.5, stratum="")
    assert test.kept == 1.0


def test_all_strata_are_bet_on_with_one_bound() -> None:
    test = EffectTest(margin=0.0, tolerance=0.0)
    for _ in range(50):
        test.observe(0.97, is_candidate=False, share=0.5, stratum="easy")
        test.observe(0.5, is_candidate=False, share=0.5, stratum="hard")

    easy = test.observe(None, is_candidate=True, share=0.5, stratum="easy")
    hard = test.observe(None, is_candidate=True, share=0.5, stratum="hard")
    new = test.observe(None, is_candidate=True, share=0.5, stratum="never seen")

    assert (easy.loss, easy.gain) == (hard.loss, hard.gain) == (new.loss, new.gain)
    assert (easy.caution, hard.caution) == (hard.caution, new.caution)


@given(ys=st.lists(st.tuples(st.sampled_from("abc"), unit_interval), max_size=30), y=unit_interval, share=shares)
def test_the_one_bound_holds_for_every_stratum(ys: list[tuple[str, float]], y: float, share: float) -> None:
    test = HarmTest(tolerance=0.0)
    for stratum, earlier in ys:
        test.observe(earlier, is_candidate=False, share=share, stratum=stratum)

    for stratum in "abcd":
        unit = test.observe(y, is_candidate=True, share=share, stratum=stratum)
        assert -unit.loss - 1e-9 <= unit.x <= unit.gain + 1e-9


def test_a_new_stratum_begins_at_the_mean_of_all() -> None:
    means = PooledMeans(prior=0.5)
    for _ in range(9):
        means.add("known", 0.9)

    assert means.mean("new") == means.overall == pytest.approx(0.86)
    assert means.extremes[0] <= means.overall <= means.extremes[1]


def test_a_limit_on_a_size_is_one_on_its_mean() -> None:
    """The usual answer is as long as before, and one in ten is eleven times as long: the mean doubles."""
    same, longer = SizeTest(limit=1.3, tolerance=1.5), SizeTest(limit=1.3, tolerance=1.5)
    for index in range(2000):
        is_candidate = index % 2 == 1
        for test, endless in ((same, False), (longer, is_candidate and index % 20 == 1)):
            test.observe(550.0 if endless else 50.0, is_candidate=is_candidate, share=0.5, stratum="")

    assert (same.kept or 0.0) > 1e6
    assert same.factor == pytest.approx(1.0, abs=0.02)
    assert (longer.kept or 0.0) < 0.1
    assert longer.factor == pytest.approx(1.7, abs=0.1)  # eleven times as long counts as LARGEST_SIZE times


def test_nothing_is_bet_on_sizes_before_the_usual_one_is_known() -> None:
    test = SizeTest(limit=1.3, tolerance=1.5)
    for _ in range(FIRST_SIZES):
        test.observe(900_000.0, is_candidate=True, share=0.5, stratum="")
        test.observe(20_000.0, is_candidate=False, share=0.5, stratum="")

    assert (test.kept, test.harm.e, test.factor) == (1.0, 1.0, 1.0)


def test_sizes_are_bet_on_at_once_where_the_usual_one_is_known() -> None:
    test = SizeTest(limit=1.3, tolerance=1.5, usual=20_000.0)

    test.observe(20_000.0, is_candidate=True, share=0.5, stratum="")

    assert (test.kept or 0.0) > 1.0


@given(size=st.floats(0, 1e9), usual=st.floats(0.1, 1e6), share=shares, is_candidate=st.booleans())
def test_no_size_takes_more_than_was_staked(size: float, usual: float, share: float, is_candidate: bool) -> None:
    test = SizeTest(limit=1.3, tolerance=1.5)
    for _ in range(FIRST_SIZES + 3):
        test.observe(usual, is_candidate=False, share=share, stratum="")
    before = test.kept or 0.0, test.harm.e

    test.observe(size, is_candidate=is_candidate, share=share, stratum="")

    assert (test.kept or 0.0) >= 0.02 * before[0]
    assert test.harm.e >= 0.02 * before[1]
    assert LARGEST_SIZE > 1.3
