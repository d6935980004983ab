"""The benchmark of the promotion decision simulates the product, and finds what it is there to find."""

from __future__ import annotations

from bench.decision.equality import assert_twin_equals_product
from bench.decision.simulate import simulate
from bench.decision.streams import Scenario


def test_the_vectorised_twin_decides_as_the_product_does() -> None:
    assert assert_twin_equals_product(runs=2) > 1000


def test_a_drifting_ramp_fools_pooled_means_and_not_the_product() -> None:
    results = simulate(Scenario("A/A, ramp, drift", drift=0.5, units=600), runs=100, seed=2)

    assert results["ratchet"].promoted <= 0.1
    assert results["t-test"].promoted > 0.5
