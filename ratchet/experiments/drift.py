"""Has the scorer moved? Evidence from answers that it scored before and scores again, tested after every round.

Each anchor has a reference: the mean of its first scores. A round scores every anchor once more; its differences to the
references are noise, or a shift of all, or of one version's answers, or the high ones go up while the low ones go down
(polarised; flattened is the reverse), which cancels out in the mean. For each of these "it is at most the tolerance" is
bet against: the payoff is the difference beyond the tolerance, cut off at twice the noise, so that its expectation is
at most 0 where the noise is symmetric, however large it is and has become.

The first two scores say which anchors are high and which low, and the others what these scored. If the same scores said
both, an anchor that was high by luck alone would fall back later, and anchors of equal worth would look flattened.

A change may come at any time, so a bet is begun anew every round: the sum of all of them is a Shiryaev-Roberts
e-detector (Shin, Ramdas, Rinaldo, "E-detectors: a nonparametric framework for sequential change detection", The New
England Journal of Statistics in Data Science 2, 2024, arXiv:2203.03532). Less than n in expectation after n rounds
without a change, it passes 1/α among them with probability at most nα. That the scorer is back is tested the same way:
for each of the above, "it is still beyond the tolerance". Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Literal

from ratchet.experiments.e_process import log_mean

FRACTIONS = (0.2, 0.5, 0.9)
WEIGHTS = (1 / 3, 1 / 3, 1 / 3)
ROUNDS_TO_A_FALSE_ALARM = 20_000
"""The least mean number of rounds to a false alarm: two years of hourly checks."""
MOST_TESTS = 10
"""The four of all anchors, and up and down of up to three versions: each has a share of the false alarms."""
ALARM = math.log(ROUNDS_TO_A_FALSE_ALARM * MOST_TESTS)
SUSPICION = math.log(2.0)
"""The evidence from which another round at once is worth its cost."""
BACK = math.log(100.0)
SMALLEST_NOISE = 0.025
REFERENCE_ROUNDS = 8
"""Scores whose mean is the reference: with 16 anchors and noise of 0.1 its error is 0.01, well within the tolerance."""
SIDE_ROUNDS = 2
"""The first of them, which only say which anchors are high and which low."""
ROUNDS_AT_ONCE = 16
"""The most rounds of one check, while something is suspected."""

Kind = Literal["up", "down", "polarised", "flattened"]
Test = tuple[Kind, str]
"""The change that is tested for, and the version whose answers are tested; "" for all."""


@dataclass(frozen=True, slots=True)
class Rescored:
    """An anchor in one round: whose answer it is, its first scores (more than SIDE_ROUNDS), and the one it has now."""

    version: str
    first: Sequence[float]
    score: float

    @property
    def change(self) -> float:
        return self.score - fmean(self.first)

    @property
    def side(self) -> float:
        """The higher, the better it was at first."""
        return fmean(self.first[:SIDE_ROUNDS])

    @property
    def change_of_side(self) -> float:
        """The change by those scores that did not choose its side."""
        return self.score - fmean(self.first[SIDE_ROUNDS:])


@dataclass(frozen=True, slots=True)
class Drift:
    """A change of the scores that was proved: `size` is the mean change in its direction in the newest round."""

    kind: Kind
    version: str
    size: float


@dataclass(slots=True)
class Detector:
    """log Σ over rounds of the wealth of who began to bet then, as a mean over the fractions. May be written down."""

    _logs: list[float] = field(default_factory=list)

    def observe(self, payoffs: Sequence[float]) -> None:
        """Bet on one round; each payoff is at least −1 and, under the null, at most 0 in expectation."""
        before = self._logs or [-math.inf] * len(FRACTIONS)
        self._logs = [
            max(log, 0.0) + math.log1p(math.exp(-abs(log))) + math.fsum(math.log1p(staked * one) for one in payoffs)
            for staked, log in zip(FRACTIONS, before, strict=True)
        ]

    @property
    def log_e(self) -> float:
        return log_mean(self._logs, WEIGHTS) if self._logs else -math.inf


class DriftWatch:
    """Tests for a change; or, `for_return`, that there is none left after one."""

    def __init__(self, tolerance: float, *, for_return: bool = False) -> None:
        self._tolerance = tolerance
        self._for_return = for_return
        self._sign = -1.0 if for_return else 1.0
        self._detectors: dict[Test, Detector] = {}
        self._changes: dict[Test, list[float]] = {}

    def observe(self, anchors: Sequence[Rescored], noise: float) -> None:
        """One round. `noise`: the standard deviation of a score of the same answer, known before it."""
        cut = 2.0 * max(noise, SMALLEST_NOISE)
        self._changes = dict(changes(anchors))
        self._detectors = {test: self._detectors.get(test) or Detector() for test in self._changes}
        for test, detector in self._detectors.items():
            beyond = (self._sign * (change - self._tolerance) / cut for change in self._changes[test])
            detector.observe([max(-1.0, min(1.0, payoff)) for payoff in beyond])

    @property
    def evidence(self) -> dict[Test, float]:
        """log e of each test."""
        return {test: detector.log_e for test, detector in self._detectors.items()}

    @property
    def is_undecided(self) -> bool:
        """Another round at once may decide it."""
        evidence = self.evidence.values()
        if self._for_return:
            return bool(evidence) and min(evidence) >= SUSPICION and not self.is_back
        return max(evidence, default=0.0) >= SUSPICION and self.drift is None

    @property
    def drift(self) -> Drift | None:
        """The change that is proved best, if one is."""
        test, log_e = max(self.evidence.items(), key=lambda item: item[1], default=(None, 0.0))
        return None if test is None or log_e < ALARM or self._for_return else Drift(*test, fmean(self._changes[test]))

    @property
    def is_back(self) -> bool:
        """Every kind of change is refuted: all at once, so none needs a share of the errors."""
        return self._for_return and min(self.evidence.values(), default=0.0) >= BACK


def changes(anchors: Sequence[Rescored]) -> Iterator[tuple[Test, list[float]]]:
    """Each test with the changes in its direction."""
    by_version: dict[str, list[float]] = {}
    for one in anchors:
        by_version.setdefault(one.version, []).append(one.change)
    groups = {"": [one.change for one in anchors]} | (by_version if len(by_version) > 1 else {})
    for version, observed in groups.items():
        yield ("up", version), observed
        yield ("down", version), [-change for change in observed]
    middle = median(one.side for one in anchors)
    apart = [math.copysign(1.0, one.side - middle) * one.change_of_side for one in anchors if one.side != middle]
    if apart:
        yield ("polarised", ""), apart
        yield ("flattened", ""), [-change for change in apart]


def noise_of(scores: Sequence[Sequence[float]]) -> float:
    """Standard deviation of repeated scores of one answer, pooled over answers that were scored twice or more."""
    squares = degrees = 0.0
    for repeated in scores:
        mean = fmean(repeated)
        squares += math.fsum((score - mean) ** 2 for score in repeated)
        degrees += len(repeated) - 1
    return math.sqrt(squares / degrees) if degrees else 0.0
