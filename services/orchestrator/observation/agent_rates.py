"""The figures of each agent over the last minute: of the fleet's, and of those registered with the manager. Pure."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import NamedTuple

from schemas.api.events import AgentMoved

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
