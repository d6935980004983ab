"""Quantiles of buckets."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from ratchet.service.metrics import quantile

BOUNDS = (0.1, 1.0, 10.0, math.inf)


@given(st.lists(st.floats(0.0, 10.0, exclude_min=True), min_size=1, max_size=200), st.floats(0.01, 0.99))
def test_a_quantile_lies_in_the_bucket_of_the_value_of_its_rank(values: list[float], q: float) -> None:
    buckets = [(bound, float(sum(value <= bound for value in values))) for bound in BOUNDS]

    found = quantile(q, buckets)

    exact = sorted(values)[max(0, math.ceil(q * len(values)) - 1)]
    upper = next(bound for bound in BOUNDS if exact <= bound)
    lower = max((bound for bound in (0.0, *BOUNDS) if bound < exact), default=0.0)
    assert found is not None
    assert lower - 1e-9 <= found <= upper + 1e-9


def test_a_histogram_without_observations_has_no_quantile() -> None:
    assert quantile(0.5, []) is None
    assert quantile(0.5, [(1.0, 0.0), (math.inf, 0.0)]) is None


def test_beyond_the_last_bound_the_quantile_is_that_bound() -> None:
    assert quantile(0.5, [(1.0, 0.0), (math.inf, 5.0)]) == 1.0
