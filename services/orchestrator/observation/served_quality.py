"""Measures what users are served and what a single answer is worth, by version, since the start."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

from ratchet.experiments.served import Quality
from ratchet.logs.best_answer import choose_answer, is_censored
from ratchet.logs.names import is_own
from schemas.api.events import AgentMoved
from schemas.api.status import Interval, QualityFigure
from schemas.records.interaction import Interaction
from services.orchestrator import metrics

WINDOW_S = 60.0
MOST = 20_000
"""Tasks that are remembered: above some 300 a second the figures are of less than a minute."""

Name = tuple[str, str | None]
"""The agent of the fleet, and the registered one whose program used its model."""


class Ended(NamedTuple):
    at: float
    name: Name
    is_ok: bool
    score: float | None
    seconds: float


class AgentRates:
    def __init__(self) -> None:
        self._ended: deque[Ended] = deque(maxlen=MOST)
        self._told: dict[Name, AgentMoved] = {}

    def note(self, ended: Ended) -> None:
        self._ended.append(ended)

    def news(self, now: float) -> list[AgentMoved]:
        """Return the figures that are others than those returned before."""
        while self._ended and self._ended[0].at < now - WINDOW_S:
            self._ended.popleft()
        by_name: dict[Name, list[Ended]] = defaultdict(list)
        for one in self._ended:
            by_name[one.name].append(one)
        figures = {name: _figures(name, by_name.get(name, [])) for name in {*by_name, *self._told}}
        news = [one for name, one in figures.items() if self._told.get(name) != one]
        self._told = {name: one for name, one in figures.items() if one.ended}
        return news


def _figures(name: Name, ended: list[Ended]) -> AgentMoved:
    scores = [one.score for one in ended if one.score is not None]
    return AgentMoved(
        agent_id=name[0],
        registered_agent=name[1],
        ended=len(ended),
        without_answer=sum(1 for one in ended if not one.is_ok),
        mean_score=sum(scores) / len(scores) if scores else None,
        mean_seconds=sum(one.seconds for one in ended) / len(ended) if ended else None,
    )


class ServedQuality:
    def __init__(self) -> None:
        self._of: dict[tuple[str, str], Quality] = {}
        self._scorers: dict[str, str] = {}

    def add_closed_task(self, lines: Sequence[Interaction]) -> None:
        """A task has these lines in the log. The fleet's own tasks serve nobody; of a censored one no mean is one."""
        first = lines[0]
        if is_own(first.arm.experiment_id) or is_censored(first.select):
            return
        if first.scorer is not None:
            self._scorers[first.agent_id] = first.scorer.id
        of = first.agent_id, first.adapter_version
        quality = self._of.get(of)
        if quality is None:
            quality = self._of[of] = Quality()
        quality.observe([line.score for line in lines], [line.response for line in lines], choose_answer(lines).score)

    def scorer_of(self, agent_id: str) -> str | None:
        """The id of the one that gave the newest score; None before the first."""
        return self._scorers.get(agent_id)

    def figures(self) -> list[QualityFigure]:
        """Return the figures by agent and version."""
        return [
            QualityFigure(
                agent_id=agent_id,
                adapter_version=version,
                served=quality.served.interval(),
                single=quality.single.interval(),
                distinct=quality.distinct.interval() if quality.distinct.count else None,
            )
            for (agent_id, version), quality in sorted(self._of.items())
            if quality.served.count
        ]

    async def refresh(self) -> None:
        """The gauges."""
        for figure in self.figures():
            for measure in ("served", "single", "distinct"):
                interval: Interval | None = getattr(figure, measure)
                if interval is not None:
                    _show(figure, measure, interval)


def _show(figure: QualityFigure, measure: str, interval: Interval) -> None:
    for name in ("mean", "low", "high"):
        value = getattr(interval, name)
        if value is not None:
            metrics.quality.labels(figure.agent_id, figure.adapter_version, measure, name).set(value)
