"""Worth of a version's answers to the held-out tasks, with intervals, and how many are needed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.ratchet.tasks import FAMILIES
from ratchet.experiments.served import Mean

GROUP = 8
MARGIN = 0.02


@dataclass(frozen=True, slots=True)
class Quality:
    """Probabilities for each held-out task, in order: that one answer of the version is right, and that the one
    served of 1 to 8 is."""

    version: str
    single: list[float]
    served: list[list[float]]

    def singles(self, family: str | None = None) -> list[float]:
        return of_family(self.single, family)

    def served_by(self, samples: int, family: str | None = None) -> list[float]:
        return of_family([curve[samples - 1] for curve in self.served], family)


def of_family(values: list[float], family: str | None) -> list[float]:
    if family is None:
        return values
    start = FAMILIES.index(family) * (len(values) // len(FAMILIES))
    return values[start : start + len(values) // len(FAMILIES)]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and half of its 95 % interval over tasks."""
    mean = Mean()
    for value in values:
        mean.add(value)
    return mean.mean, mean.half_width or 0.0


def difference(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """Return the mean difference and half of its interval, paired by task."""
    return interval([one - other for one, other in zip(ours, theirs, strict=True)])


def samples_needed(now: Quality, first: Quality, whole: int = GROUP) -> int | None:
    """Fewest answers of which the served one is proved no worse, within MARGIN, than v1.0.0's best of the whole group.

    Asked from the whole group down, as the fleet does; None: not even that.
    """
    fewest = None
    for samples in range(whole, 0, -1):
        mean, half = difference(now.served_by(samples), first.served_by(whole))
        if mean - half < -MARGIN:
            break
        fewest = samples
    return fewest
