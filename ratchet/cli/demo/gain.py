"""Before and after on the same held-out tasks: means and their difference, each with a 95 % confidence interval. Pure.

A task's value is the mean over its samples, so that a group of eight answers counts as one observation; the difference
is paired by task, which takes the tasks' own difficulty out of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Any

Z_95 = 1.96


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over `tasks` tasks and the ends of its 95 % interval (normal approximation)."""

    mean: float
    low: float
    high: float
    tasks: int


@dataclass(frozen=True, slots=True)
class Gain:
    """Of one score in [0, 1]."""

    before: Estimate
    after: Estimate
    difference: Estimate

    @property
    def significant(self) -> bool:
        """Proved at 95 %: the whole interval of the difference lies above 0."""
        return self.difference.low > 0.0

    def as_dict(self) -> dict[str, Any]:
        return {"significant": self.significant, **asdict(self)}


def estimate(values: Sequence[float]) -> Estimate:
    """One value a task. With fewer than two the interval is all that a score can be."""
    if len(values) < 2:
        return Estimate(fmean(values) if values else 0.0, -1.0, 1.0, len(values))
    mean, half = fmean(values), Z_95 * stdev(values) / sqrt(len(values))
    return Estimate(mean, mean - half, mean + half, len(values))


def gain(before: Mapping[str, Sequence[float]], after: Mapping[str, Sequence[float]]) -> Gain:
    """By task, the scores of its samples; tasks with samples on one side only are left out."""
    both = [task for task, scores in before.items() if scores and after.get(task)]
    first = [fmean(before[task]) for task in both]
    second = [fmean(after[task]) for task in both]
    return Gain(estimate(first), estimate(second), estimate([b - a for a, b in zip(first, second, strict=True)]))
