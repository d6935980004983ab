"""The product's decision for many runs at once, in numpy: the same formulas, asserted equal to the product on a sample.

The scorer never changes here, and the budget is the length of the stream.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.decision.streams import LEVELS, Floats
from ratchet.experiments.e_process import FRACTIONS, TILTS, WEIGHTS
from ratchet.experiments.effect import CAUTION
from ratchet.experiments.metrics import HARM_WEIGHTS, TYPICAL_SECONDS, TYPICAL_TOKENS
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


class Metric:
    """ratchet.experiments.effect.EffectTest of every run."""

    def __init__(self, runs: int, margin: float | None, tolerance: float) -> None:
        self._margin = margin
        self._tolerance = tolerance
        self._means = Means(runs, 0.5)
        self.gain = Wealth(runs)
        self.harm = Wealth(runs)

    def observe(self, y: Floats, units: Units, weight: Floats | None = None) -> None:
        weight = np.ones_like(y) if weight is None else weight
        p, m = units.share, self._means.mean(units.stratum)
        caution = 1 + CAUTION / self._means.count(units.stratum)
        surprise = weight * (y - m)
        x = np.where(units.candidate, surprise / p, -surprise / (1 - p))
        if self._margin is not None:
            self.gain.bet(x - self._margin, (np.maximum(m / p, (1 - m) / (1 - p)) + self._margin) * caution)
        self.harm.bet(-x - self._tolerance, (np.maximum((1 - m) / p, m / (1 - p)) + self._tolerance) * caution)
        self._means.add(units.stratum, y, weight)


class Twin:
    """`ratchet.experiments.experiment.Experiment` of every run, except that it goes on after the first verdict."""

    def __init__(self, plan: ExperimentPlan, runs: int) -> None:
        self.plan = plan
        self._shares = np.array([step.share for step in plan.ramp])
        self._enough = np.array([step.candidate_units for step in plan.ramp])
        self.step = np.zeros(runs, dtype=np.int64)
        self._at_step = np.zeros(runs)
        self.candidates = np.zeros(runs)
        self.units = 0
        self.score = Metric(runs, plan.min_gain, plan.score_tolerance)
        self.success = Metric(runs, -plan.success_margin, plan.success_tolerance)
        self.bounds = Metric(runs, -plan.success_margin, 0.0)
        self._length = Metric(runs, None, plan.length_tolerance)
        self._latency = Metric(runs, None, plan.latency_tolerance)
        self._usual_length = Means(runs, TYPICAL_TOKENS)
        self._usual_latency = Means(runs, TYPICAL_SECONDS)
        self._ratio = np.full((runs, len(TILTS)), 1 / len(TILTS))
        self.verdict = np.zeros(runs, dtype=np.int64)
        self.units_at_verdict = np.zeros(runs)
        self.candidates_at_verdict = np.zeros(runs)

    @property
    def share(self) -> Floats:
        return np.asarray(self._shares[self.step])

    @property
    def harm(self) -> Floats:
        metrics = (self.score, self.success, self._length, self._latency)
        return np.asarray(sum(weight * metric.harm.e for weight, metric in zip(HARM_WEIGHTS, metrics, strict=True)))

    def observe(self, units: Units) -> None:
        self.score.observe(units.score, units, units.scored)
        self.success.observe(units.scored, units)
        self.bounds.observe(units.scored * units.score + (1 - units.scored) * ~units.candidate, units)
        self._length.observe(relative(self._usual_length, units.length, units), units)
        self._latency.observe(relative(self._usual_latency, units.latency, units), units)
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
        proofs = np.minimum(self.score.gain.e, self.success.gain.e)
        gain = np.minimum(proofs, self.bounds.gain.e) >= self.plan.promote_at
        promoted = gain & (self.step == len(self._shares) - 1) & (fewest >= self.plan.min_units_per_arm)
        verdict = np.where(self.harm >= self.plan.roll_back_at, ROLL_BACK, np.where(promoted, PROMOTE, CONTINUE))
        verdict = np.where(self._ratio.sum(axis=1) >= self.plan.abort_at, ABORT, verdict)
        new = (self.verdict == CONTINUE) & (verdict != CONTINUE)
        self.verdict[new] = verdict[new]
        self.units_at_verdict[new] = self.units
        self.candidates_at_verdict[new] = self.candidates[new]


def relative(usual: Means, size: Floats, units: Units) -> Floats:
    """ratchet.experiments.effect.Relative of every run."""
    c = usual.mean(units.stratum)
    usual.add(units.stratum, size, (~units.candidate).astype(float))
    return np.asarray(c / (c + size))
