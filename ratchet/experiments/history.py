"""The course of an experiment as a bounded list of moments, evenly thinned as it grows. For pictures only."""

from __future__ import annotations

from dataclasses import dataclass

MAX_MOMENTS = 400


@dataclass(frozen=True, slots=True)
class Moment:
    """How things stood after `units` finished units; `gain` and `harm` are e-values."""

    units: int
    share: float
    gain: float
    harm: float


class History:
    """Keeps every `stride`-th unit; the stride doubles whenever the list is full."""

    def __init__(self) -> None:
        self._moments: list[Moment] = []
        self._stride = 1

    def wants(self, units: int) -> bool:
        return units % self._stride == 0

    def add(self, moment: Moment) -> None:
        self._moments.append(moment)
        if len(self._moments) >= MAX_MOMENTS:
            self._stride *= 2
            self._moments = [kept for kept in self._moments if self.wants(kept.units)]

    @property
    def moments(self) -> tuple[Moment, ...]:
        return tuple(self._moments)
