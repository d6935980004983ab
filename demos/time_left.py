"""Tells how long a run of known stages still takes. Pure but for the clock it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

SURE_S = 60.0
"""Planned seconds of work after which the pace that was seen counts as much as the planned one."""


TURN = ("collect", "train", "prove")
"""The stages of a turn of the ratchet."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds on two idle cores: of the start, of one answer, of a training before its first step, of one answer that
    is trained on, and of the live test."""

    start_s: float
    answer_s: float
    trained_s: float
    proved_s: float
    training_start_s: float = 0.0

    def stages(
        self, *, tasks: int, samples: int, group: int, groups: int, turns: int, also: Sequence[str] = ()
    ) -> dict[str, float]:
        """Return the stages in their order, each with about the seconds that it takes.

        `also`: stages at the end in which each task is answered once. The pace that is seen corrects them all.
        """
        learned = groups * group
        times = (self.answer_s * learned, self.training_start_s + self.trained_s * learned, self.proved_s)
        turn = dict(zip(TURN, times, strict=True))
        return {
            "start": self.start_s,
            "before": self.answer_s * tasks * samples,
            **{f"{name} {number}": seconds for number in range(1, turns + 1) for name, seconds in turn.items()},
            "after": self.answer_s * tasks * samples,
            **dict.fromkeys(also, self.answer_s * tasks),
        }


def further_turns(turns: int) -> list[tuple[str, ...]]:
    """Return the stages of each turn that comes only where there is time for it."""
    return [tuple(f"{name} {number}" for name in TURN) for number in range(2, turns + 1)]


class TimeLeft:
    """`stages`: in their order, the seconds each takes where nothing else runs; the pace so far corrects them all.

    The first one, in which processes start, says nothing about the pace of the others. `rounds`: stages that come only
    if the first of them begins before `latest`, in seconds from now.
    """

    def __init__(
        self,
        stages: Mapping[str, float],
        clock: Callable[[], float],
        rounds: Sequence[Sequence[str]] = (),
        latest: float = float("inf"),
    ) -> None:
        self._stages = dict(stages)
        self._clock = clock
        self._rounds = {names[0]: frozenset(names) for names in rounds}
        self._latest = latest
        self._created = self._began = clock()
        self._current = next(iter(self._stages))
        self._done = 0.0

    def at(self, stage: str, done: float = 0.0) -> None:
        """The stage that is going on, and how much of it is done, of 1."""
        if self._place == 0 and stage != self._current:
            self._began = self._clock()
        self._current, self._done = stage, min(1.0, max(0.0, done))

    @property
    def _place(self) -> int:
        return list(self._stages).index(self._current)

    @property
    def _pace(self) -> float:
        if self._place == 0:
            return 1.0
        behind = sum(list(self._stages.values())[1 : self._place]) + self._done * self._stages[self._current]
        return (self._clock() - self._began + SURE_S) / (behind + SURE_S)

    def seconds(self) -> float:
        pace, spent = self._pace, self._clock() - self._created
        ahead = (1.0 - self._done) * self._stages[self._current] * pace
        skipped: frozenset[str] = frozenset()
        for name in list(self._stages)[self._place + 1 :]:
            if name in self._rounds and spent + ahead > self._latest:
                skipped |= self._rounds[name]
            if name not in skipped:
                ahead += self._stages[name] * pace
        return ahead
