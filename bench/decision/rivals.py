"""Two other tests on the same streams, which look after every unit: Welch's t-test, and GrowthBook's test.

GrowthBook's sequential test (gbstats `sequential_interval_halfwidth` and `sequential_rho`, tuning parameter 5000) is
the asymptotic confidence sequence of Waudby-Smith et al. 2023, arXiv:2103.06476v7, equations 9 and 161: half-width =
√s² · √(2(nρ² + 1)·log(√(nρ² + 1)/α)/(nρ)²), ρ = √((−2·log α + log(−2·log α + 1))/5000), s² = n·SE².

Both take tasks for independent and pool all of an arm, as they are used. Left out: minimum run times, and corrections.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bench.decision.streams import Floats
from bench.decision.twin import CONTINUE, PROMOTE, ROLL_BACK

ALPHA = 0.05
TUNING = 5000
MIN_TASKS = 30
"""Tasks of each arm before the first look."""

RHO = math.sqrt((-2 * math.log(ALPHA) + math.log(-2 * math.log(ALPHA) + 1)) / TUNING)
Z = 1.959963984540054


class Rival:
    """First verdict of a test on the difference of the arms' means."""

    def __init__(self, runs: int) -> None:
        self.verdict = np.zeros(runs, dtype=np.int64)
        self.units_at_verdict = np.zeros(runs)
        self.candidates_at_verdict = np.zeros(runs)

    def look(self, arms: Arms, units: int, candidates: Floats) -> None:
        ready = np.minimum(arms.count[0], arms.count[1]) >= MIN_TASKS
        if not ready.any():
            return
        difference, squared_error = arms.difference()
        significant = ready & (np.abs(difference) > self.halfwidth(arms, squared_error))
        new = significant & (self.verdict == CONTINUE)
        self.verdict[new] = np.where(difference > 0, PROMOTE, ROLL_BACK)[new]
        self.units_at_verdict[new] = units
        self.candidates_at_verdict[new] = candidates[new]

    def halfwidth(self, arms: Arms, squared_error: Floats) -> Floats:
        raise NotImplementedError


class TTest(Rival):
    """Welch, two-sided, 5 %; Student's quantile by its expansion in 1/ν (Abramowitz and Stegun 26.7.5)."""

    def halfwidth(self, arms: Arms, squared_error: Floats) -> Floats:
        parts = np.maximum(arms.variances(), 1e-12) / np.maximum(np.array(arms.count), 2)
        nu = parts.sum(axis=0) ** 2 / (parts**2 / np.maximum(np.array(arms.count) - 1, 1)).sum(axis=0)
        quantile = Z + (Z**3 + Z) / (4 * nu) + (5 * Z**5 + 16 * Z**3 + 3 * Z) / (96 * nu**2)
        return np.asarray(quantile * np.sqrt(squared_error))


class GrowthBook(Rival):
    def halfwidth(self, arms: Arms, squared_error: Floats) -> Floats:
        n = np.maximum(arms.count[0] + arms.count[1], 1)
        grown = n * RHO**2 + 1
        return np.asarray(
            np.sqrt(squared_error * n) * np.sqrt(2 * grown * np.log(np.sqrt(grown) / ALPHA) / (n * RHO) ** 2)
        )


class Arms:
    """Count, sum and sum of squares of the tasks of both arms."""

    def __init__(self, runs: int) -> None:
        self.count = [np.zeros(runs), np.zeros(runs)]
        self._total = [np.zeros(runs), np.zeros(runs)]
        self._squares = [np.zeros(runs), np.zeros(runs)]

    def add(self, candidate: NDArray[np.bool_], tasks: Floats, total: Floats, squares: Floats) -> None:
        for arm, where in enumerate((~candidate, candidate)):
            self.count[arm] += np.where(where, tasks, 0)
            self._total[arm] += np.where(where, total, 0)
            self._squares[arm] += np.where(where, squares, 0)

    def variances(self) -> Floats:
        return np.array([self._variance(arm) for arm in (0, 1)])

    def difference(self) -> tuple[Floats, Floats]:
        """Candidate minus primary, and its squared standard error."""
        means = [self._total[arm] / np.maximum(self.count[arm], 1) for arm in (0, 1)]
        errors = self.variances() / np.maximum(np.array(self.count), 1)
        return means[1] - means[0], np.asarray(np.maximum(errors, 1e-12).sum(axis=0))

    def _variance(self, arm: int) -> Floats:
        count = np.maximum(self.count[arm], 2)
        return np.asarray(np.maximum(self._squares[arm] - self._total[arm] ** 2 / count, 0) / (count - 1))
