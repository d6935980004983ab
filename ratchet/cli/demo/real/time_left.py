"""How long a run of known stages still takes. Pure but for the clock it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping


class TimeLeft:
    """`stages`: in their order, the seconds each takes where nothing else runs; the pace so far corrects them all."""

    def __init__(self, stages: Mapping[str, float], clock: Callable[[], float]) -> None:
        self._stages = dict(stages)
        self._clock = clock
        self._began = clock()
        self._current = next(iter(self._stages))
        self._done = 0.0

    def at(self, stage: str, done: float = 0.0) -> None:
        """The stage that is going on, and how much of it is done, of 1."""
        self._current, self._done = stage, min(1.0, max(0.0, done))

    def seconds(self) -> float:
        names = list(self._stages)
        place = names.index(self._current)
        behind = sum(self._stages[name] for name in names[:place]) + self._done * self._stages[self._current]
        ahead = sum(self._stages.values()) - behind
        pace = (self._clock() - self._began) / behind if behind else 1.0
        return ahead * pace
