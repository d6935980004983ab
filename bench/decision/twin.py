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
from ratchet.experiments.metrics import AUDIT_WEIGHT, HARM_WEIGHTS_WITH_REFUSALS, TYPICAL_SECONDS, TYPICAL_TOKENS
from schemas.records.evidence import ExperimentPlan

CONTINUE, PROMOTE, ROLL_BACK, ABORT = 0, 1, 2, 3
SCORE, SUCCESS, BOUNDS, LENGTH, LATENCY, ANSWERED, AUDIT = range(7)
METRICS = 7
HARM_BY_METRIC = np.append(np.insert(np.array(HARM_WEIGHTS_WITH_REFUSALS), BOUNDS, 0.0), 0.0)
HARM_WITH_AUDITOR = (1 - AUDIT_WEIGHT) * HARM_BY_METRIC + AUDIT_WEIGHT * (np.arange(METRICS) == AUDIT)


class Wealth:
    """ratchet.experiments.e_process.BettingProcess of every metric and run."""

    def __init__(self, runs: int) -> None:
        self._wealth = np.tile(np.array(WEIGHTS), (METRICS, runs, 1))

    def bet(self, payoff: Floats, bound: Floats) -> None:
        with np.errstate(over="ignore", under="ignore"):
            self._wealth *= 1 + np.array(FRACTIONS) * (payoff / bound)[..., None]

    @property
    def e(self) -> Floats:
        return np.asarray(self._wealth.sum(axis=-1))


class Means:
    """ratchet.experiments.effect.StratumMeans of every run, for as many rows of values as there are priors."""

    def __init__(self, runs: int, *priors: float) -> None:
        self._sum = np.tile(np.array(priors)[:, None, None], (1, runs, len(LEVELS)))
        self._count = np.ones((len(priors), runs, len(LEVELS)))
        self._runs = np.arange(runs)

    def mean(self, stratum: NDArray[np.int64]) -> Floats:
        return np.asarray(self._sum[:, self._runs, stratum] / self._count[:, self._runs, stratum])

    def count(self, stratum: NDArray[np.int64]) -> Floats:
        return np.asarray(self._count[:, self._runs, stratum])

    def add(self, stratum: NDArray[np.int64], values: Floats, weights: Floats) -> None:
        self._sum[:, self._runs, stratum] += weights * values
        self._count[:, self._runs, stratum] += weights


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
    audit: Floats
    is_audited: NDArray[np.bool_]


class Twin:
    """`ratchet.experiments.experiment.Experiment` of every run, except that it goes on after the first verdict.

    One plan for each run: they may differ in their limits, tolerances and least gain, and in nothing else. Arrays are
    [metrics, runs], in the order of the names above.
    """

    def __init__(self, plans: Sequence[ExperimentPlan]) -> None:
        runs, plan = len(plans), plans[0]
        self.plan = plan
        self._margins = np.array([margins_of(one) for one in plans]).T
        self._tolerances = np.array([tolerances_of(one) for one in plans]).T
        self._shares = np.array([step.share for step in plan.ramp])
        self._enough = np.array([step.candidate_units for step in plan.ramp])
        self.step = np.zeros(runs, dtype=np.int64)
        self._at_step = np.zeros(runs)
        self.candidates = np.zeros(runs)
        self.units = 0
        self._means = Means(runs, *[0.5] * METRICS)
        self._gain, self._harm = Wealth(runs), Wealth(runs)
        self._total, self._weight = np.zeros((METRICS, runs)), np.zeros(runs)
        self._usual = Means(runs, TYPICAL_TOKENS, TYPICAL_SECONDS)
        self._ratio = np.full((runs, len(TILTS)), 1 / len(TILTS))
        self.verdict = np.zeros(runs, dtype=np.int64)
        self.units_at_verdict = np.zeros(runs)
        self.candidates_at_verdict = np.zeros(runs)
        self.effects_at_verdict = np.zeros((METRICS, runs))

    @property
    def share(self) -> Floats:
        return np.asarray(self._shares[self.step])

    @property
    def gain(self) -> Floats:
        """The e-values that speak for the candidate, of each metric; without an auditor its own stands for proved."""
        gain = self._gain.e
        if self.plan.audit is None:
            gain[AUDIT] = np.inf
        return gain

    @property
    def harm(self) -> Floats:
        return np.asarray((HARM_WITH_AUDITOR if self.plan.audit else HARM_BY_METRIC) @ self._harm.e)

    @property
    def effects(self) -> Floats:
        """ratchet.experiments.effect.EffectMean of every metric and run."""
        return np.asarray(self._total / self._weight)

    def observe(self, units: Units) -> None:
        ones = np.ones_like(units.score)
        worst = units.scored * units.score + (1 - units.scored) * ~units.candidate
        length, latency = self._relative(units)
        values = np.stack([units.score, units.scored, worst, length, latency, 1.0 - units.refused, units.audit])
        self._bet(values, np.stack([units.scored, *[ones] * (METRICS - 2), 1.0 * units.is_audited]), units)
        p = units.share[:, None]
        self._ratio *= np.where(units.candidate[:, None], np.array(TILTS), 1.0) / (1 - p + p * np.array(TILTS))
        self.units += 1
        self.candidates += units.candidate
        self._at_step += units.candidate
        harm = self.harm
        self._climb(harm)
        self._judge(harm)

    def _relative(self, units: Units) -> Floats:
        """ratchet.experiments.effect.Relative of lengths and latencies."""
        c, sizes = self._usual.mean(units.stratum), np.stack([units.length, units.latency])
        self._usual.add(units.stratum, sizes, np.broadcast_to((~units.candidate).astype(float), sizes.shape))
        return np.asarray(c / (c + sizes))

    def _bet(self, y: Floats, weight: Floats, units: Units) -> None:
        """ratchet.experiments.effect.EffectTest of every metric and run."""
        p, m = units.share, self._means.mean(units.stratum)
        caution = 1 + CAUTION / self._means.count(units.stratum)
        surprise = weight * (y - m)
        x = np.where(units.candidate, surprise / p, -surprise / (1 - p))
        counts = np.ones_like(x)
        counts[AUDIT] = weight[AUDIT]
        self._total += p * (1 - p) * x
        self._weight += p * (1 - p)
        gain, harm = counts * (x - self._margins), counts * (-x - self._tolerances)
        self._gain.bet(gain, (np.maximum(m / p, (1 - m) / (1 - p)) + self._margins) * caution)
        self._harm.bet(harm, (np.maximum((1 - m) / p, m / (1 - p)) + self._tolerances) * caution)
        self._means.add(units.stratum, y, weight)

    def _climb(self, harm: Floats) -> None:
        last = self.step >= len(self._shares) - 1
        up = ~last & (self._at_step >= self._enough[self.step]) & (harm < self.plan.hold_ramp_at)
        self.step += up
        self._at_step[up] = 0

    def _judge(self, harm: Floats) -> None:
        fewest = np.minimum(self.candidates, self.units - self.candidates)
        proved = (self.gain.min(axis=0) >= self.plan.promote_at) & (self.plan.kind == "canary")
        promoted = proved & (self.step == len(self._shares) - 1) & (fewest >= self.plan.min_units_per_arm)
        verdict = np.where(harm >= self.plan.roll_back_at, ROLL_BACK, np.where(promoted, PROMOTE, CONTINUE))
        verdict = np.where(self._ratio.sum(axis=1) >= self.plan.abort_at, ABORT, verdict)
        new = (self.verdict == CONTINUE) & (verdict != CONTINUE)
        if new.any():
            self.verdict[new] = verdict[new]
            self.units_at_verdict[new] = self.units
            self.candidates_at_verdict[new] = self.candidates[new]
            self.effects_at_verdict[:, new] = self.effects[:, new]


def margins_of(plan: ExperimentPlan) -> tuple[float, ...]:
    """By how much the candidate must be better, of each metric."""
    limits = plan.limits
    assert limits is not None, "a fleet's plan has limits"
    sizes = (-loss_of(limits.length), -loss_of(limits.latency))
    audit = -plan.audit.margin if plan.audit else 0.0
    return plan.min_gain, -limits.success, -plan.success_margin, *sizes, -limits.refused, audit


def tolerances_of(plan: ExperimentPlan) -> tuple[float, ...]:
    """By how much it may be worse without harm, of each metric."""
    sizes = (plan.length_tolerance, plan.latency_tolerance)
    audit = plan.audit.tolerance if plan.audit else 0.0
    return plan.score_tolerance, plan.success_tolerance, 0.0, *sizes, plan.refused_tolerance, audit
