"""Contrasts are unbiased and bounded; strata are bounded; sizes are relative to what is usual."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.experiments.effect import MAX_STRATA, HarmTest, Relative, SizeTest, StratumMeans, contrast

unit_interval = st.floats(0, 1)
shares = st.floats(0.01, 0.99)


@given(one=unit_interval, other=unit_interval, m=unit_interval, share=shares)
def test_a_contrast_is_unbiased_whatever_the_mean_and_the_share(
    one: float, other: float, m: float, share: float
) -> None:
    candidate = contrast(one, m, share, is_candidate=True).x
    primary = contrast(other, m, share, is_candidate=False).x

    assert share * candidate + (1 - share) * primary == pytest.approx(one - other, abs=1e-9)


@given(y=unit_interval, m=unit_interval, share=shares, is_candidate=st.booleans())
def test_a_contrast_lies_within_its_bounds(y: float, m: float, share: float, is_candidate: bool) -> None:
    unit = contrast(y, m, share, is_candidate=is_candidate)

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
