"""A veto for each task type: a candidate that destroys one kind of task is rolled back, however good it is elsewhere.

Each type has a harm test of its own. All types together have a fifth of the error rate of a false roll-back, and the
weighted mean of the metrics has the rest. Of that fifth the k-th type that appears has the part 1/(k(k + 1)), and these
parts sum to 1. So by the union bound a candidate that is no worse is rolled back at most at the whole rate. While the
veto is near, a promotion waits. Types beyond the first 256 share one test. A type that is seen too seldom can't be
judged, and is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ratchet.experiments.effect import MAX_STRATA, OTHER, HarmTest

COMMON = 0.05
"""Share of the units from which on a type must have been seen often enough before a promotion."""
TYPES_SHARE = 0.2
"""The types' part of the error rate of a false roll-back. A type that is destroyed is found within a few of its units
at any share; an experiment that is bad as a whole is found the later the larger this share is.
"""
NAMED = 8
"""Types that are named as too rare."""


def part_of(nth: int) -> float:
    """Return, for the n-th type that appears, its part of the error rate, over that of the weighted mean."""
    return TYPES_SHARE / (1.0 - TYPES_SHARE) / (nth * (nth + 1))


def threshold_of(alpha: float) -> float:
    """Return the e-value at which the weighted mean of the metrics rolls back: it has its part of `alpha` alone."""
    return 1.0 / (1.0 - TYPES_SHARE) / alpha


@dataclass(slots=True)
class TypeTally:
    """One type: its test, its part of the error rate, and its units."""

    test: HarmTest
    part: float
    harm: float = 0.0
    """The e-value for harm times its part: to be held against the threshold of the weighted mean."""
    candidate: int = 0
    primary: int = 0

    @property
    def fewest(self) -> int:
        return min(self.candidate, self.primary)


@dataclass(slots=True)
class TypeVeto:
    """The harm tests of all types of one experiment. `enough`: units of each arm from which on a type is judged."""

    tolerance: float
    enough: int
    replayed: Mapping[str, int] = field(default_factory=dict)
    """Prompts of each type at which the shadow replay compared the candidate already."""
    shares_errors: bool = True
    """False in older plans, whose types have a rate of error of their own."""
    _types: dict[str, TypeTally] = field(default_factory=dict)
    _units: int = 0

    def _part(self, nth: int) -> float:
        return part_of(nth) if self.shares_errors else 1.0 / (nth * (nth + 1))

    def observe(
        self, score: float | None, *, is_candidate: bool, share: float, stratum: str, weight: float = 1.0
    ) -> None:
        """The next unit in the order of assignment."""
        name = stratum if stratum in self._types or len(self._types) < MAX_STRATA else OTHER
        kind = self._types.get(name)
        if kind is None:
            kind = self._types[name] = TypeTally(HarmTest(self.tolerance), self._part(len(self._types) + 1))
        kind.test.observe(score, is_candidate=is_candidate, share=share, stratum=name, weight=weight)
        kind.harm = kind.part * kind.test.harm.e
        kind.candidate += is_candidate
        kind.primary += not is_candidate
        self._units += 1

    @property
    def worst(self) -> tuple[str | None, float]:
        """The type with the largest e-value for harm, and that value times its part of the error rate."""
        if not self._types:
            return None, 0.0
        name = max(self._types, key=lambda one: self._types[one].harm)
        return name, self._types[name].harm

    @property
    def rare(self) -> tuple[str, ...]:
        """Types that were seen too seldom to be judged; at most eight are named."""
        rare = (name for name, kind in self._types.items() if self._times_seen(name, kind) < self.enough)
        return tuple(name for name, _ in zip(rare, range(NAMED), strict=False))

    @property
    def awaited(self) -> str | None:
        """A common type that must be seen more often before a promotion; None: there is none."""
        for name, kind in self._types.items():
            common = kind.candidate + kind.primary >= COMMON * self._units
            if common and self._times_seen(name, kind) < self.enough:
                return name
        return None

    def _times_seen(self, name: str, kind: TypeTally) -> int:
        return kind.fewest + self.replayed.get(name, 0)
