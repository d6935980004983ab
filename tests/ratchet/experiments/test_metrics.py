"""The course of an experiment stays bounded and even."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ratchet.experiments.metrics import MAX_POINTS, EValues, History


@given(st.integers(1, 5000))
def test_moments_are_bounded_evenly_spaced_and_go_on_to_the_end(units: int) -> None:
    history = History()

    for unit in range(1, units + 1):
        if history.wants(unit):
            history.add(EValues(units=unit, share=0.5, gain=1.0, harm=1.0))

    kept = [point.units for point in history.points]
    assert len(kept) < MAX_POINTS
    assert len({later - earlier for earlier, later in pairwise(kept)}) <= 1
    assert units - kept[-1] < max(1, units // 100)
