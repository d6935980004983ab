"""The product's decision for many runs at once, in numpy: the same formulas, asserted equal to the product on a sample.

The scorer never changes here, and the budget is the length of the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.decision.streams import Floats
from ratchet.experiments.e_process import FRACTIONS, TILTS, WEIGHTS
from ratchet.experiments.effect import CAUTION, FIRST_SIZES, LARGEST_SIZE, factor_of
from ratchet.experiments.metrics import AUDIT_WEIGHT, HARM_WEIGHTS_WITH_REFUSALS, NOT_REPLAYED
from ratchet.experiments.type_veto import COMMON, part_of
from schemas.records.evidence import ExperimentPlan

Strata = NDArray[np.int64]

CONTINUE, PROMOTE, ROLL_BACK, ABORT = 0, 1, 2, 3
SCORE, SUCCESS, BOUNDS, LENGTH, LATENCY, ANSWERED, AUDIT = range(7)
METRICS = 7
MEANS = (SCORE, SUCCESS, BOUNDS, ANSWERED, AUDIT)
"""The metrics in [0, 1]; the two others are sizes."""
DAY_S = 86_400.0
HARM_BY_METRIC = np.append(np.insert(np.array(HARM_WEIGHTS_WITH_REFUSALS), BOUNDS, 0.0), 0.0)
HARM_WITH_AUDITOR = (1 - AUDIT_WEIGHT) * HARM_BY_METRIC + AUDIT_WEIGHT * (np.arange(METRICS) == AUDIT)


class Wealth:
    """ratchet.experiments.e_process.BettingProcess of every metric and run."""

    def __init__(self, metrics: int, runs: int) -> None:
        self._wealth = np.tile(np.array(WEIGHTS)[:, None, None], (1, metrics, runs))

    def bet(self, payoff: Floats, bound: Floats) -> None:
        with np.errstate(over="ignore", under="ignore"):
            self._wealth *= 1 + np.array(FRACTIONS)[:, None, None] * (payoff / bound)

    @property
    def e(self) -> Floats:
        return np.asarray(self._wealth.sum(axis=0))


class Means:
    """ratchet.experiments.effect.PooledMeans of every run, for as many rows of values as there are priors."""

    def __init__(self, runs: int, strata: int, *priors: float) -> None:
        shape = (len(priors), runs)
        self._total = np.broadcast_to(np.array(priors)[:, None], shape).copy()
        self.count = np.ones(shape)
        self._sums, self._counts = np.zeros((strata, *shape)), np.zeros((strata, *shape))
        self._rows, self._runs = np.arange(len(priors))[:, None], np.arange(runs)

    def mean(self, stratum: Strata) -> Floats:
        at = stratum, self._rows, self._runs
        return np.asarray((self._overall + self._sums[at]) / (1 + self._counts[at]))

    @property
    def extremes(self) -> tuple[Floats, Floats]:
        means = (self._overall + self._sums) / (1 + self._counts)  # of a stratum not seen yet: the overall
        return np.minimum(means.min(axis=0), self._overall), np.maximum(means.max(axis=0), self._overall)

    def add(self, stratum: Strata, values: Floats, weights: Floats) -> None:
        at = stratum, self._rows, self._runs
        self._sums[at] += weights * values
        self._counts[at] += weights
        self._total += weights * values
        self.count += weights

    @property
    def _overall(self) -> Floats:
        return np.asarray(self._total / self.count)


@dataclass(frozen=True)
class Units:
    """One unit of each run: arrays over runs."""

    candidate: NDArray[np.bool_]
    share: Floats
    stratum: Strata
    score: Floats
    scored: Floats
    length: Floats
    latency: Floats
    refused: Floats
    audit: Floats
    is_audited: NDArray[np.bool_]


class Sizes:
    """ratchet.experiments.effect.SizeTest of lengths and latencies, of every run."""

    def __init__(self, plans: Sequence[ExperimentPlan], strata: int) -> None:
        limits = [one.limits for one in plans if one.limits]
        self._limit = np.array([[one.length for one in limits], [one.latency for one in limits]])
        self._most = np.array(
            [[factor_of(-one.length_tolerance), factor_of(-one.latency_tolerance)] for one in plans]
        ).T
        shape = self._limit.shape
        usual = [(one.replayed or NOT_REPLAYED).usual_latency_s or 0.0 for one in plans]
        self._total = np.array([[0.0] * len(usual), usual]) * FIRST_SIZES
        self._count = np.where(self._total > 0, float(FIRST_SIZES), 0.0)
        self._means = Means(shape[1], strata, *[1 / LARGEST_SIZE] * 2)
        self.kept, self.harm = Wealth(2, shape[1]), Wealth(2, shape[1])
        self._difference, self._usual = np.zeros(shape), np.zeros(shape)

    @property
    def factors(self) -> Floats:
        """The estimated ratio of the candidate's mean to the primary's, at least 0.01."""
        known = self._usual > 0
        return np.where(known, np.maximum(0.01, 1 + self._difference / np.where(known, self._usual, 1.0)), 1.0)

    def observe(self, sizes: Floats, units: Units) -> None:
        bet = (self._count >= FIRST_SIZES).astype(float)
        largest = LARGEST_SIZE * np.where(bet > 0, self._total, 1.0) / np.maximum(self._count, 1)
        z, p = np.minimum(sizes, largest) / largest, units.share
        m, (low, high) = self._means.mean(units.stratum), self._means.extremes
        caution = 1 + CAUTION / self._means.count

        def excess(factor: Floats | float) -> Floats:
            return np.where(units.candidate, (z - factor * m) / p, -factor * (z - m) / (1 - p))

        limit, most = self._limit, self._most
        self.kept.bet(-bet * excess(limit), np.maximum(limit * high / (1 - p), (1 - limit * low) / p) * caution)
        self.harm.bet(bet * excess(most), most * np.maximum(high / p, (1 - low) / (1 - p)) * caution)
        self._difference += bet * p * (1 - p) * excess(1.0)
        self._usual += bet * p * (1 - p) * np.where(units.candidate, m, m + (z - m) / (1 - p))
        self._means.add(units.stratum, z, bet)
        self._total += np.where(units.candidate, 0.0, sizes)
        self._count += ~units.candidate


class Types:
    """ratchet.experiments.type_veto.TypeVeto of every run: a harm test of each stratum, which sees its units alone."""

    def __init__(self, plans: Sequence[ExperimentPlan], strata: int) -> None:
        runs, self._plan = len(plans), plans[0]
        self._runs = np.arange(runs)
        self._total, self._count = np.full((runs, strata), 0.5), np.ones((runs, strata))
        self._own = np.zeros((runs, strata))
        self._wealth = np.tile(np.array(WEIGHTS), (runs, strata, 1))
        self._place = np.zeros((runs, strata))
        self.seen = np.zeros((2, runs, strata))
        prompts = [(one.replayed or NOT_REPLAYED).types for one in plans]
        self.replayed = np.array([[of_run.get(str(kind), 0) for kind in range(strata)] for of_run in prompts])

    @property
    def harm(self) -> Floats:
        """The e-value of the worst type, times its part of the error rate."""
        place = np.where(self._place > 0, self._place, np.inf)
        return np.asarray((part_of(1) * 2 * self._wealth.sum(axis=-1) / (place * (place + 1))).max(axis=-1))

    @property
    def awaited(self) -> NDArray[np.bool_]:
        """True where a common type was not seen often enough."""
        units, fewest = self.seen.sum(axis=0), self.seen.min(axis=0)
        common = (units >= COMMON * units.sum(axis=-1, keepdims=True)) & (units > 0)
        return np.asarray((common & (fewest + self.replayed < self._plan.min_type_units)).any(axis=-1))

    def observe(self, score: Floats, weight: Floats, units: Units) -> None:
        at, p, tolerance = (self._runs, units.stratum), units.share, self._plan.type_tolerance
        self._place[at] = np.where(self._place[at] > 0, self._place[at], 1 + (self._place > 0).sum(axis=-1))
        count = self._count[at]
        overall = self._total[at] / count
        m = (overall + self._own[at]) / count  # of its own units there is one less than with the prior one
        low, high = np.minimum(overall, m), np.maximum(overall, m)
        surprise = weight * (score - m)
        x = np.where(units.candidate, surprise / p, -surprise / (1 - p))
        bound = (np.maximum((1 - low) / p, high / (1 - p)) + tolerance) * (1 + CAUTION / count)
        with np.errstate(under="ignore", over="ignore"):
            self._wealth[at] *= 1 + np.array(FRACTIONS) * ((-x - tolerance) / bound)[:, None]
        for sums in (self._total, self._own):
            sums[at] += weight * score
        self._count[at] += weight
        self.seen[units.candidate.astype(int), self._runs, units.stratum] += 1


class Twin:
    """`ratchet.experiments.experiment.Experiment` of every run, except that it goes on after the first verdict.

    One plan for each run: they may differ in their limits, tolerances, least gain, in what a shadow replay proved and
    in how many of the ramp's first steps they leave out, and in nothing else. Arrays are [metrics, runs], in the order
    of the names above.
    """

    def __init__(self, plans: Sequence[ExperimentPlan], strata: int) -> None:
        runs, plan = len(plans), max(plans, key=lambda one: len(one.ramp))
        self.plan = plan
        self._replayed = np.array([replayed_of(one) for one in plans]).T
        self._margins = np.array([margins_of(one) for one in plans]).T
        self._tolerances = np.array([tolerances_of(one) for one in plans]).T
        self._shares = np.array([step.share for step in plan.ramp])
        self._enough = np.array([step.candidate_units for step in plan.ramp])
        self.step = np.array([len(plan.ramp) - len(one.ramp) for one in plans])
        self._at_step = np.zeros(runs)
        self.candidates = np.zeros(runs)
        self.units = 0
        self._means = Means(runs, strata, *[0.5] * len(MEANS))
        self._gain, self._harm = Wealth(len(MEANS), runs), Wealth(len(MEANS), runs)
        self._total, self._weight = np.zeros((len(MEANS), runs)), np.zeros(runs)
        self._sizes = Sizes(plans, strata)
        self.types = Types(plans, strata)
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
        gain = self._of_all(self._gain.e, self._sizes.kept.e) * self._replayed
        if self.plan.audit is None:
            gain[AUDIT] = np.inf
        return gain

    @property
    def harm(self) -> Floats:
        weights = HARM_WITH_AUDITOR if self.plan.audit else HARM_BY_METRIC
        return np.asarray(weights @ self._of_all(self._harm.e, self._sizes.harm.e))

    @property
    def effects(self) -> Floats:
        """ratchet.experiments.effect.EffectMean of every metric and run; of sizes, factors."""
        return self._of_all(self._total / self._weight, self._sizes.factors)

    def _of_all(self, means: Floats, sizes: Floats) -> Floats:
        every = np.empty((METRICS, means.shape[1]))
        every[list(MEANS)], every[[LENGTH, LATENCY]] = means, sizes
        return every

    def observe(self, units: Units, day: float = np.inf) -> None:
        """`day`: days since the experiment began."""
        ones = np.ones_like(units.score)
        worst = units.scored * units.score + (1 - units.scored) * ~units.candidate
        values = np.stack([units.score, units.scored, worst, 1.0 - units.refused, units.audit])
        self._bet(values, np.stack([units.scored, *[ones] * (len(MEANS) - 2), 1.0 * units.is_audited]), units)
        self._sizes.observe(np.stack([units.length, units.latency]), units)
        self.types.observe(units.score, units.scored, units)
        p = units.share[:, None]
        self._ratio *= np.where(units.candidate[:, None], np.array(TILTS), 1.0) / (1 - p + p * np.array(TILTS))
        self.units += 1
        self.candidates += units.candidate
        self._at_step += units.candidate
        harm = self.harm
        self._climb(harm)
        self._judge(harm, day)

    def _bet(self, y: Floats, weight: Floats, units: Units) -> None:
        """ratchet.experiments.effect.EffectTest of every metric and run."""
        p, m, (low, high) = units.share, self._means.mean(units.stratum), self._means.extremes
        caution = 1 + CAUTION / self._means.count
        surprise = weight * (y - m)
        x = np.where(units.candidate, surprise / p, -surprise / (1 - p))
        counts = np.ones_like(x)
        counts[-1] = weight[-1]  # the auditor
        self._total += p * (1 - p) * x
        self._weight += p * (1 - p)
        gain, harm = counts * (x - self._margins), counts * (-x - self._tolerances)
        self._gain.bet(gain, (np.maximum(high / p, (1 - low) / (1 - p)) + self._margins) * caution)
        self._harm.bet(harm, (np.maximum((1 - low) / p, high / (1 - p)) + self._tolerances) * caution)
        self._means.add(units.stratum, y, weight)

    def _climb(self, harm: Floats) -> None:
        last = self.step >= len(self._shares) - 1
        up = ~last & (self._at_step >= self._enough[self.step]) & (harm < self.plan.hold_ramp_at)
        self.step += up
        self._at_step[up] = 0

    def _judge(self, harm: Floats, day: float) -> None:
        fewest = np.minimum(self.candidates, self.units - self.candidates)
        proved = (self.gain.min(axis=0) >= self.plan.promote_at) & (self.plan.kind == "canary")
        promoted = proved & (self.step == len(self._shares) - 1) & (fewest >= self.plan.min_units_per_arm)
        promoted &= (
            ~self.types.awaited & (self.types.harm < self.plan.hold_ramp_at) & (day * DAY_S >= self.plan.min_age_s)
        )
        harmed = (harm >= self.plan.roll_back_at) | (self.types.harm >= self.plan.roll_back_at)
        verdict = np.where(harmed, ROLL_BACK, np.where(promoted, PROMOTE, CONTINUE))
        verdict = np.where(self._ratio.sum(axis=1) >= self.plan.abort_at, ABORT, verdict)
        new = (self.verdict == CONTINUE) & (verdict != CONTINUE)
        if new.any():
            self.verdict[new] = verdict[new]
            self.units_at_verdict[new] = self.units
            self.candidates_at_verdict[new] = self.candidates[new]
            self.effects_at_verdict[:, new] = self.effects[:, new]


def replayed_of(plan: ExperimentPlan) -> list[float]:
    """Return what the live e-value of each metric is multiplied by."""
    found = plan.replayed or NOT_REPLAYED
    by_metric = {SUCCESS: found.success, BOUNDS: found.bounds, LENGTH: found.length, ANSWERED: found.refused}
    known = [by_metric.get(metric) for metric in range(METRICS)]
    return [1.0 if e is None else 0.5 * (1.0 + e) for e in known]


def margins_of(plan: ExperimentPlan) -> tuple[float, ...]:
    """Return by how much the candidate must be better, of each metric that is a mean of values in [0, 1]."""
    limits = plan.limits
    assert limits is not None, "a fleet's plan has limits"
    audit = -plan.audit.margin if plan.audit else 0.0
    return plan.min_gain, -limits.success, -plan.success_margin, -limits.refused, audit


def tolerances_of(plan: ExperimentPlan) -> tuple[float, ...]:
    """Return by how much it may be worse without harm, of the same metrics."""
    audit = plan.audit.tolerance if plan.audit else 0.0
    return plan.score_tolerance, plan.success_tolerance, 0.0, plan.refused_tolerance, audit
