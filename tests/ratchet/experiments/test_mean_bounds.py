from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from ratchet.experiments.mean_bounds import MeanBounds


def missed(
    draw: Callable[[random.Random], float], mean: float, *, runs: int = 200, values: int = 300
) -> tuple[int, int]:
    """In how many runs each end was ever on the wrong side."""
    low = high = 0
    for seed in range(runs):
        rng, bounds = random.Random(seed), MeanBounds()
        ends = []
        for _ in range(values):
            bounds.observe(draw(rng))
            ends.append((bounds.lower, bounds.upper))
        low += any(lower > mean for lower, _ in ends)
        high += any(upper < mean for _, upper in ends)
    return low, high


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.97])
def test_each_end_is_ever_wrong_in_one_run_of_forty_at_most(chance: float) -> None:
    low, high = missed(lambda rng: float(rng.random() < chance), chance)
    assert low <= 10
    assert high <= 10


def test_the_bounds_close_in_sooner_where_values_differ_little() -> None:
    def width(spread: float) -> float:
        rng, bounds = random.Random(1), MeanBounds()
        for _ in range(1000):
            bounds.observe(0.8 + rng.uniform(-spread, spread))
        return bounds.upper - bounds.lower

    assert width(0.01) < 0.02 < width(0.19) < 0.1


def test_before_the_first_value_all_is_possible() -> None:
    assert (MeanBounds().lower, MeanBounds().upper) == (0.0, 1.0)
