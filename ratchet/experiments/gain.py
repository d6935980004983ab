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


@dataclass(frozen=True, slots=True)
class Saved:
    """Samples of a group that are not needed any more for what `group` of the base model's gave."""

    group: int
    needed: int | None
    """Return how many of the primary's are as good, to within the margin; None: not even the whole group is."""
    difference: Estimate | None
    """Best of `needed` of the primary's less best of `group` of the base model's, paired by task."""

    @property
    def samples(self) -> int:
        return self.group - self.needed if self.needed is not None else 0


Answered = tuple[float | None, float]
"""A sample's score, by which the answer to serve is chosen, and what it is worth."""

MARGIN = 0.02
"""Loss of served quality that does not count."""


def served_gain(before: Mapping[str, Sequence[Answered]], after: Mapping[str, Sequence[Answered]]) -> Gain:
    """Return the gain in what a user is served: by task what the best-scored sample is worth."""
    return gain(
        {task: [_best_of(samples, len(samples))] for task, samples in before.items() if samples},
        {task: [_best_of(samples, len(samples))] for task, samples in after.items() if samples},
    )


def samples_needed(before: Mapping[str, Sequence[Answered]], after: Mapping[str, Sequence[Answered]]) -> Saved:
    """The fewest samples whose best is proved no worse, by more than MARGIN, than the base model's best of a group.

    From the whole group down, until one is not proved: a fixed sequence of tests needs no correction for their number
    (Maurer, Hothorn and Lehmacher 1995).
    """
    both = [task for task, samples in before.items() if samples and after.get(task)]
    group = min((min(len(before[task]), len(after[task])) for task in both), default=0)
    served = [_best_of(before[task], group) for task in both]
    saved = Saved(group, None, None)
    for count in range(group, 0, -1):
        worth = [_best_of(after[task], count) for task in both]
        found = estimate([now - base for now, base in zip(worth, served, strict=True)])
        if found.low <= -MARGIN:
            break
        saved = Saved(group, count, found)
    return saved


def _best_of(samples: Sequence[Answered], count: int) -> float:
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
