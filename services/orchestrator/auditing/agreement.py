"""Measures of how far scorer, auditor and people agree. Pure.

Two scorers rarely share a scale, so how often they *order* two answers of a task differently is the measure of their
disagreement; the difference of their means is shown beside it, for its course.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations, islice
from math import atanh, sqrt, tanh
from statistics import fmean

from ratchet.experiments.served import Z95
from schemas.api.feedback import AuditWindow, Calibration, Estimate
from schemas.records.audit import AuditedTask, LoggedLabel, Shown

KEPT = 4_000
LATEST = 200
WINDOWS = 40
LEAST_WINDOW = 20
FEWEST_PAIRS = 100
"""Pairs of answers below which the disagreement is no figure: with 100 its standard error is 0.05 at most."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One audited task: sums over its answers that both scored, and over the pairs of them."""

    at: datetime
    answers: int
    judged: float
    audited: float
    pairs: int
    discordant: float

    @classmethod
    def of(cls, line: AuditedTask) -> Compared:
        both = [(j, a) for j, a in zip(line.judged, line.scores, strict=False) if j is not None and a is not None]
        ordered = [(one, two) for one, two in combinations(both, 2) if one[1] != two[1]]
        return cls(
            at=line.timestamp,
            answers=len(both),
            judged=sum(judged for judged, _ in both),
            audited=sum(audited for _, audited in both),
            pairs=len(ordered),
            discordant=sum(_discordant(*pair) for pair in ordered),
        )


def _discordant(one: tuple[float, float], two: tuple[float, float]) -> float:
    """1 where the judge orders the two the other way round, 0.5 where it sees no difference."""
    return 0.5 if one[0] == two[0] else float((one[0] < two[0]) != (one[1] < two[1]))


class AuditBook:
    """One agent's newest audits."""

    def __init__(self) -> None:
        self._compared: deque[Compared] = deque(maxlen=KEPT)
        self.auditor: str | None = None

    def add(self, line: AuditedTask) -> None:
        if line.by != "auditor":
            return
        self.auditor = line.auditor.id if line.auditor else self.auditor
        self._compared.append(Compared.of(line))

    @property
    def latest(self) -> AuditWindow | None:
        newest = self._newest()
        return window(newest) if newest else None

    @property
    def unscored(self) -> int:
        return sum(one.answers == 0 for one in self._newest())

    @property
    def windows(self) -> tuple[AuditWindow, ...]:
        """At most 40 windows of equally many tasks, the last one perhaps of fewer."""
        tasks = list(self._compared)
        size = max(LEAST_WINDOW, -(-len(tasks) // WINDOWS))
        return tuple(window(tasks[start : start + size]) for start in range(0, len(tasks), size))

    @property
    def discordance(self) -> float | None:
        """The disagreement of the latest; None where they are too few to say."""
        newest = self._newest()
        return window(newest).discordance if sum(one.pairs for one in newest) >= FEWEST_PAIRS else None

    def _newest(self) -> list[Compared]:
        return list(islice(reversed(self._compared), LATEST))[::-1]


def window(tasks: Sequence[Compared]) -> AuditWindow:
    answers, pairs = sum(one.answers for one in tasks), sum(one.pairs for one in tasks)
    return AuditWindow(
        at=tasks[-1].at,
        tasks=len(tasks),
        judge=sum(one.judged for one in tasks) / answers if answers else None,
        auditor=sum(one.audited for one in tasks) / answers if answers else None,
        discordance=sum(one.discordant for one in tasks) / pairs if pairs else None,
    )


@dataclass(frozen=True, slots=True)
class Labelled:
    """One label beside one scorer's score; of a pair both say how much the first is better, the rest is differences."""

    label: float
    score: float
    length: float
    position: float


def pair_with_scores(
    labels: Iterable[LoggedLabel], score_of: Callable[[Shown], float | None], *, pairs: bool
) -> list[Labelled]:
    """Those labels, of pairs or of single answers, that the scorer has a score beside."""
    found = []
    for line in labels:
        one, two = line.answer, line.other
        score, other = score_of(one), score_of(two) if two else None
        if pairs == (two is not None) and score is not None and (two is None or other is not None):
            if two is None or other is None:
                found.append(Labelled(line.score, score, one.length, one.sample))
            else:
                better = 0.5 if score == other else float(score > other)
                found.append(Labelled(line.score, better, one.length - two.length, one.sample - two.sample))
    return found


def calibration(found: Sequence[Labelled]) -> Calibration:
    surplus = [one.score - one.label for one in found]
    return Calibration(
        labels=len(found),
        rank=rank_correlation([one.score for one in found], [one.label for one in found]),
        kappa=kappa([one.score >= 0.5 for one in found], [one.label >= 0.5 for one in found]),
        by_length=rank_correlation(surplus, [one.length for one in found]),
        by_position=rank_correlation(surplus, [one.position for one in found]),
    )


def rank_correlation(xs: Sequence[float], ys: Sequence[float]) -> Estimate | None:
    """Spearman's, with the interval of Bonett and Wright (Psychometrika 65, 2000). None where nothing varies."""
    count = len(xs)
    if count < 5 or len(set(xs)) < 2 or len(set(ys)) < 2:
        return None
    a, b = ranks(xs), ranks(ys)
    mean_a, mean_b = fmean(a), fmean(b)
    cov = sum((one - mean_a) * (two - mean_b) for one, two in zip(a, b, strict=True))
    value = cov / sqrt(sum((one - mean_a) ** 2 for one in a) * sum((two - mean_b) ** 2 for two in b))
    value = max(-1.0, min(1.0, value))
    z, half = atanh(max(-0.999999, min(0.999999, value))), Z95 * sqrt((1.0 + value**2 / 2.0) / (count - 3))
    return Estimate(value=value, low=tanh(z - half), high=tanh(z + half))


def ranks(values: Sequence[float]) -> list[float]:
    """Return the ranks, from 1 on; equal values share their mean."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for index in order[start : end + 1]:
            found[index] = (start + end) / 2.0 + 1.0
        start = end + 1
    return found


def kappa(xs: Sequence[bool], ys: Sequence[bool]) -> Estimate | None:
    """Cohen's, with the interval of its large-sample standard error. None where both always say the same one thing."""
    count = len(xs)
    if count < 5:
        return None
    agreed = sum(x == y for x, y in zip(xs, ys, strict=True)) / count
    p, q = sum(xs) / count, sum(ys) / count
    by_chance = p * q + (1.0 - p) * (1.0 - q)
    if by_chance >= 1.0:
        return None
    value = (agreed - by_chance) / (1.0 - by_chance)
    half = Z95 * sqrt(agreed * (1.0 - agreed) / count) / (1.0 - by_chance)
    return Estimate(value=value, low=max(-1.0, value - half), high=min(1.0, value + half))
