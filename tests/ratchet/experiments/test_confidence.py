"""The band tells the same story as the e-values, and holds the truth."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ratchet.experiments.confidence import EffectBand
from ratchet.experiments.experiment import Experiment
from schemas.records.evidence import Verdict
from tests.ratchet.experiments.making_experiments import HALF, Traffic, plan, run


def test_no_unit_no_knowledge() -> None:
    (band,) = EffectBand(0.05).after([0])

    assert (band.low, band.effect, band.high) == (-1.0, 0.0, 1.0)


def test_the_band_leaves_zero_when_the_e_value_passes_its_threshold() -> None:
    experiment = run(Experiment(plan(ramp=HALF)), Traffic(effect=0.08), 600)

    for point in experiment.history:
        if point.gain >= 20:
            assert point.band.low >= 0.0
    assert experiment.decision.verdict is Verdict.PROMOTE
    assert experiment.decision.band.low >= 0.0


@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.005])
def test_a_stricter_alpha_takes_more_evidence_and_draws_a_wider_band(alpha: float) -> None:
    experiment = run(Experiment(plan(ramp=HALF, alpha=alpha)), Traffic(effect=0.08), 900)

    evidence, band = experiment.decision.evidence, experiment.decision.band
    assert experiment.decision.verdict is Verdict.PROMOTE
    assert evidence.gain_score >= 1 / alpha
    assert min(point.units for point in experiment.history if point.band.low >= 0) == min(
        point.units for point in experiment.history if point.gain >= 1 / alpha
    )
    assert band.low >= 0.0


def test_its_ends_only_close_in() -> None:
    history = run(Experiment(plan(ramp=HALF)), Traffic(), 300).history

    for earlier, later in pairwise(history):
        assert later.band.low >= earlier.band.low
        assert later.band.high <= earlier.band.high
    assert history[-1].band.high - history[-1].band.low < 0.2


def test_it_holds_the_truth_at_all_times_in_nine_of_ten_experiments() -> None:
    missed = 0
    for seed in range(30):
        endless = plan(experiment_id=f"coverage-{seed}", ramp=HALF, promote_at=1e200, roll_back_at=1e200)
        band = run(Experiment(endless), Traffic(effect=0.05, seed=seed), 80).decision.band
        missed += not band.low <= 0.05 <= band.high

    assert missed <= 6
