"""Means before and after on the same held-out tasks, and their difference, each with a 95 % confidence interval. Pure.

A task's value is the mean over its samples, so that a group of eight answers counts as one observation; the difference
is paired by task, which takes the tasks' own difficulty out of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from ratchet.experiments.served import Z95, best_of
from schemas.records.evaluation import Interval


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over `tasks` tasks and the ends of its 95 % interval (normal approximation)."""

    mean: float
    low: float
    high: float
    tasks: int

    def of_a_score(self) -> Estimate:
        """The same where the mean is known to lie in [0, 1], which the normal approximation does not know."""
        return Estimate(self.mean, max(0.0, self.low), min(1.0, self.high), self.tasks)


def format_interval(found: Estimate | Interval, *, signed: bool = False) -> str:
    """Return the mean and the ends of its interval, such as `0.500 [0.400, 0.600]`."""
    sign = "+" if signed else ""
    return f"{found.mean:{sign}.3f} [{found.low:{sign}.3f}, {found.high:{sign}.3f}]"


@dataclass(frozen=True, slots=True)
class Gain:
    """The gain in one score in [0, 1]."""

    before: Estimate
    after: Estimate
    difference: Estimate

    @property
    def significant(self) -> bool:
        """Proved at 95 %: the whole interval of the difference lies above 0."""
        return self.difference.low > 0.0

    def as_dict(self) -> dict[str, Any]:
        return {"significant": self.significant, **asdict(self)}


def format_gain(found: Gain) -> tuple[str, str, str]:
    """Return before, after and the difference, each with its interval."""
    return format_interval(found.before), format_interval(found.after), format_interval(found.difference, signed=True)


Answered = tuple[float | None, float]
"""A sample's score, by which the answer to serve is chosen, and what it is worth."""


def served_gain(before: Mapping[str, Sequence[Answered]], after: Mapping[str, Sequence[Answered]]) -> Gain:
    """Return the gain in what a user is served: by task what the best-scored sample is worth."""
    return gain(
        {task: [worth_of_best(samples, len(samples))] for task, samples in before.items() if samples},
        {task: [worth_of_best(samples, len(samples))] for task, samples in after.items() if samples},
    )


def worth_of_best(samples: Sequence[Answered], count: int) -> float:
    """Return what the best-scored of `count` samples is worth, expected over all draws of so many."""
    return best_of([-1.0 if score is None else score for score, _ in samples], count, [worth for _, worth in samples])


def estimate(values: Sequence[float]) -> Estimate:
    """One value a task. With fewer than two the interval is all that a score can be."""
    if len(values) < 2:
        return Estimate(fmean(values) if values else 0.0, -1.0, 1.0, len(values))
    mean, half = fmean(values), Z95 * stdev(values) / sqrt(len(values))
    return Estimate(mean, mean - half, mean + half, len(values))


def gain(before: Mapping[str, Sequence[float]], after: Mapping[str, Sequence[float]]) -> Gain:
    """Compare by task the scores of its samples; tasks with samples on one side only are left out."""
    both = [task for task, scores in before.items() if scores and after.get(task)]
    first = [fmean(before[task]) for task in both]
    second = [fmean(after[task]) for task in both]
    difference = estimate([b - a for a, b in zip(first, second, strict=True)])
    return Gain(estimate(first).of_a_score(), estimate(second).of_a_score(), difference)
