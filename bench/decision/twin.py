"""The product's decision for many runs at once, in numpy: the same formulas, asserted equal to the product on a sample.

The scorer never changes here, and the budget is the length of the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.decision.streams import LEVELS, Floats
from ratchet.experiments.e_process import FRACTIONS, TILTS, WEIGHTS
from ratchet.experiments.effect import CAUTION, loss_of
from ratchet.experiments.metrics import HARM_WEIGHTS_WITH_REFUSALS, TYPICAL_SECONDS, TYPICAL_TOKENS
from schemas.records.evidence import ExperimentPlan

CONTINUE, PROMOTE, ROLL_BACK, ABORT = 0, 1, 2, 3


class Wealth:
    """ratchet.experiments.e_process.BettingProcess of every run."""

    def __init__(self, runs: int) -> None:
        self._wealth = np.tile(np.array(WEIGHTS), (runs, 1))

    def bet(self, payoff: Floats, bound: Floats) -> None:
        with np.errstate(over="ignore", under="ignore"):
            self._wealth *= 1 + np.array(FRACTIONS) * (payoff / bound)[:, None]

    @property
    def e(self) -> Floats:
        return np.asarray(self._wealth.sum(axis=1))


class Means:
    """ratchet.experiments.effect.StratumMeans of every run."""

    def __init__(self, runs: int, prior: float) -> None:
        self._sum = np.full((runs, len(LEVELS)), prior)
        self._count = np.ones((runs, len(LEVELS)))
        self._runs = np.arange(runs)

    def mean(self, stratum: NDArray[np.int64]) -> Floats:
        return np.asarray(self._sum[self._runs, stratum] / self._count[self._runs, stratum])

    def count(self, stratum: NDArray[np.int64]) -> Floats:
        return np.asarray(self._count[self._runs, stratum])

    def add(self, stratum: NDArray[np.int64], value: Floats, weight: Floats) -> None:
        self._sum[self._runs, stratum] += weight * value
        self._count[self._runs, stratum] += weight


@dataclass(frozen=True)
class Units:
    """One unit of each run: arrays over runs."""

    candidate: NDArray[np.bool_]
    share: Floats
    stratum: NDArray[np.int64]
    score: Floats
    scored: Floats
    length: Floats
    latency: Floats
    refused: Floats


class Metric:
    """ratchet.experiments.effect.EffectTest of every run. Margin and tolerance may differ between runs."""

    def __init__(self, runs: int, margin: Floats | float, tolerance: Floats | float) -> None:
        self._margin = margin
        self._tolerance = tolerance
        self._means = Means(runs, 0.5)
        self.gain = Wealth(runs)
        self.harm = Wealth(runs)
        self._total = np.zeros(runs)
        self._weight = np.zeros(runs)

    @property
    def effect(self) -> Floats:
        """ratchet.experiments.effect.EffectMean of every run."""
        return np.asarray(self._total / np.maximum(self._weight, 1e-12))

    def observe(self, y: Floats, units: Units, weight: Floats | None = None) -> None:
        weight = np.ones_like(y) if weight is None else weight
        p, m = units.share, self._means.mean(units.stratum)
        caution = 1 + CAUTION / self._means.count(units.stratum)
        surprise = weight * (y - m)
        x = np.where(units.candidate, surprise / p, -surprise / (1 - p))
        self._total += p * (1 - p) * x
        self._weight += p * (1 - p)
        self.gain.bet(x - self._margin, (np.maximum(m / p, (1 - m) / (1 - p)) + self._margin) * caution)
        self.harm.bet(-x - self._tolerance, (np.maximum((1 - m) / p, m / (1 - p)) + self._tolerance) * caution)
        self._means.add(units.stratum, y, weight)


class Twin:
    """`ratchet.experiments.experiment.Experiment` of every run, except that it goes on after the first verdict.

    One plan for each run: they may differ in their limits, tolerances and least gain, and in nothing else.
    """

    def __init__(self, plans: Sequence[ExperimentPlan]) -> None:
        runs, plan = len(plans), plans[0]
        limits = [plan.limits for plan in plans if plan.limits is not None]
        assert len(limits) == runs, "every plan has limits"
        self.plan = plan
        self._shares = np.array([step.share for step in plan.ramp])
        self._enough = np.array([step.candidate_units for step in plan.ramp])
        self.step = np.zeros(runs, dtype=np.int64)
        self._at_step = np.zeros(runs)
        self.candidates = np.zeros(runs)
        self.units = 0
        self.score = Metric(runs, np.array([plan.min_gain for plan in plans]), plan.score_tolerance)
        self.success = Metric(runs, np.array([-one.success for one in limits]), plan.success_tolerance)
        self.bounds = Metric(runs, -plan.success_margin, 0.0)
        self.length = Metric(
            runs,
            np.array([-loss_of(one.length) for one in limits]),
            np.array([plan.length_tolerance for plan in plans]),
        )
        self.latency = Metric(
            runs,
            np.array([-loss_of(one.latency) for one in limits]),
            np.array([plan.latency_tolerance for plan in plans]),
        )
        self.refused = Metric(runs, np.array([-one.refused for one in limits]), plan.refused_tolerance)
        self._usual_length = Means(runs, TYPICAL_TOKENS)
        self._usual_latency = Means(runs, TYPICAL_SECONDS)
        self._ratio = np.full((runs, len(TILTS)), 1 / len(TILTS))
        self.verdict = np.zeros(runs, dtype=np.int64)
        self.units_at_verdict = np.zeros(runs)
        self.candidates_at_verdict = np.zeros(runs)
        self.effects_at_verdict = np.zeros((runs, 5))
        """Of score, success, length, latency and answers that are no refusals, on the scale of the tests."""

    @property
    def share(self) -> Floats:
        return np.asarray(self._shares[self.step])

    @property
    def harm(self) -> Floats:
        metrics = (self.score, self.success, self.length, self.latency, self.refused)
        weighted = zip(HARM_WEIGHTS_WITH_REFUSALS, metrics, strict=True)
        return np.asarray(sum(weight * metric.harm.e for weight, metric in weighted))

    @property
    def proofs(self) -> Floats:
        """The least e-value of those a promotion needs."""
        needed = (self.score, self.success, self.bounds, self.length, self.latency, self.refused)
        return np.asarray(np.min([metric.gain.e for metric in needed], axis=0))

    def observe(self, units: Units) -> None:
        self.score.observe(units.score, units, units.scored)
        self.success.observe(units.scored, units)
        self.bounds.observe(units.scored * units.score + (1 - units.scored) * ~units.candidate, units)
        self.length.observe(relative(self._usual_length, units.length, units), units)
        self.latency.observe(relative(self._usual_latency, units.latency, units), units)
        self.refused.observe(1.0 - units.refused, units)
        p = units.share[:, None]
        self._ratio *= np.where(units.candidate[:, None], np.array(TILTS), 1.0) / (1 - p + p * np.array(TILTS))
        self.units += 1
        self.candidates += units.candidate
        self._at_step += units.candidate
        self._climb()
        self._judge()

    def _climb(self) -> None:
        last = self.step >= len(self._shares) - 1
        up = ~last & (self._at_step >= self._enough[self.step]) & (self.harm < self.plan.hold_ramp_at)
        self.step += up
        self._at_step[up] = 0

    def _judge(self) -> None:
        fewest = np.minimum(self.candidates, self.units - self.candidates)
        gain = self.proofs >= self.plan.promote_at
        promoted = gain & (self.step == len(self._shares) - 1) & (fewest >= self.plan.min_units_per_arm)
        verdict = np.where(self.harm >= self.plan.roll_back_at, ROLL_BACK, np.where(promoted, PROMOTE, CONTINUE))
        verdict = np.where(self._ratio.sum(axis=1) >= self.plan.abort_at, ABORT, verdict)
        new = (self.verdict == CONTINUE) & (verdict != CONTINUE)
        self.verdict[new] = verdict[new]
        self.units_at_verdict[new] = self.units
        self.candidates_at_verdict[new] = self.candidates[new]
        if new.any():
            metrics = (self.score, self.success, self.length, self.latency, self.refused)
            self.effects_at_verdict[new] = np.stack([metric.effect for metric in metrics], axis=1)[new]


def relative(usual: Means, size: Floats, units: Units) -> Floats:
    """ratchet.experiments.effect.Relative of every run."""
    c = usual.mean(units.stratum)
    usual.add(units.stratum, size, (~units.candidate).astype(float))
    return np.asarray(c / (c + size))
