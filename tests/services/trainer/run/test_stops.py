"""When a policy has run away."""

from __future__ import annotations

import math

import pytest

from services.trainer.run.progress import Stops

STOPS = Stops(forgetting=1.0, entropy=1.0, divergence=20.0)
FIRST = {"loss": 0.1, "entropy": 0.5}
FINE = {"loss": -0.3, "grad_norm": 2.0, "entropy": 0.1, "good_log_ratio": 0.4, "divergence": 3.0}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, None),
        ({"good_log_ratio": -0.9, "entropy": 1.4, "divergence": 19.0}, None),
        ({"loss": math.nan}, "the loss became nan, the gradient 2.0"),
        ({"grad_norm": math.inf}, "the gradient inf"),
        ({"good_log_ratio": -1.2}, "unlikelier by 1.20 nats a token (stop_forgetting is 1)"),
        ({"entropy": 1.75}, "the entropy has risen by 1.25 nats a token (stop_entropy is 1)"),
        ({"divergence": 25.0}, "25.0 nats a token from the one that wrote the log (stop_divergence is 20)"),
    ],
)
def test_a_step_is_in_order_or_its_fault_is_named(changed: dict[str, float], reason: str | None) -> None:
    found = STOPS.reason(FINE | changed, FIRST)

    assert found == reason or (found is not None and reason is not None and reason in found)


def test_figures_that_a_learner_does_not_give_stop_nothing() -> None:
    assert STOPS.reason({"loss": 0.7}, {"loss": 0.7}) is None
