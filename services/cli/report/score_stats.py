"""Scores by adapter version and over time, from the log of interactions in one pass. Memory does not grow with it.

A task counts once, with the mean over its group: the samples of one group are no independent observations. Live are the
users' tasks; held-out are those of the golden set; anchors are fixed answers that were scored again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratchet.experiments.served import Mean, Quality
from ratchet.logs.best_answer import choose_answer, is_censored
from ratchet.logs.groups import group_by_task
from ratchet.logs.names import ANCHORS, EVALUATION, INTERACTIONS, REPLAY_TASKS, RESCORED, is_own
from ratchet.logs.reader import LogReader
from ratchet.logs.rows import ScoredAnswerRow

MOST_PERIODS = 96
MOST_ANCHOR_RUNS = 200
MOST_VERSIONS = 1000


@dataclass(slots=True)
class Period:
    """Some tasks that ended one after the other. `shares`: version → its tasks among them."""

    began: str
    tasks: int = 0
    total: float = 0.0
    scored: int = 0
    shares: dict[str, int] = field(default_factory=dict)

    def add(self, version: str, score: float | None) -> None:
        self.tasks += 1
        self.shares[version] = self.shares.get(version, 0) + 1
        if score is not None:
            self.total += score
            self.scored += 1

    def merge(self, later: Period) -> Period:
        shares = {name: self.shares.get(name, 0) + later.shares.get(name, 0) for name in self.shares | later.shares}
        return Period(
            self.began, self.tasks + later.tasks, self.total + later.total, self.scored + later.scored, shares
        )

    @property
    def mean(self) -> float | None:
        return self.total / self.scored if self.scored else None


class Timeline:
    """Periods of the same number of tasks each; when there are too many, each two become one."""

    def __init__(self) -> None:
        self.periods: list[Period] = []
        self._size = 1

    def add(self, at: str, version: str, score: float | None) -> None:
        if not self.periods or self.periods[-1].tasks >= self._size:
            if len(self.periods) >= MOST_PERIODS:
                pairs = zip(self.periods[::2], self.periods[1::2], strict=True)
                self.periods = [first.merge(second) for first, second in pairs]
                self._size *= 2
            self.periods.append(Period(at))
        self.periods[-1].add(version, score)


@dataclass(slots=True)
class AgentScores:
    """One agent's. `anchors` are the mean scores of the latest runs."""

    live: dict[str, Mean] = field(default_factory=dict)
    held_out: dict[str, Mean] = field(default_factory=dict)
    quality: dict[str, Quality] = field(default_factory=dict)
    timeline: Timeline = field(default_factory=Timeline)
    anchors: deque[tuple[str, Mean]] = field(default_factory=lambda: deque(maxlen=MOST_ANCHOR_RUNS))
    tasks: int = 0
    failed: int = 0

    def means(self) -> dict[str, dict[str, dict[str, float | None]]]:
        of_kind = {"live": self.live, "held_out": self.held_out}
        return {kind: {version: mean.data() for version, mean in means.items()} for kind, means in of_kind.items()}

    def qualities(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """Return by version, of the users' tasks: what they were served, a single answer, distinct answers in a
        group."""
        return {version: quality.data() for version, quality in self.quality.items()}

    def data(self) -> dict[str, Any]:
        """Return what the report draws of them."""
        return self.means() | {
            "quality": self.qualities(),
            "tasks": self.tasks,
            "failed": self.failed,
            "timeline": [
                {"began": one.began, "tasks": one.tasks, "mean": one.mean, "shares": one.shares}
                for one in self.timeline.periods
            ],
            "anchors": [mean.mean for _, mean in self.anchors],
        }


@dataclass(slots=True)
class LogScores:
    agents: dict[str, AgentScores] = field(default_factory=dict)
    lines: int = 0
    bad_lines: int = 0


def read_scores(logs_dir: Path) -> LogScores:
    """Raises JournalError for a log with a part missing."""
    scores = LogScores()

    def count(_: object) -> None:
        scores.bad_lines += 1

    rows = (record.value for record in LogReader(logs_dir, INTERACTIONS, on_bad=count).records(ScoredAnswerRow))
    for group in group_by_task(rows, incomplete=True):
        scores.lines += len(group)
        _add(scores.agents.setdefault(group[0].agent_id, AgentScores()), group)
    return scores


def _add(agent: AgentScores, group: list[ScoredAnswerRow]) -> None:
    first, values = group[0], [row.score for row in group if row.score is not None]
    score = sum(values) / len(values) if values else None
    experiment_id = first.arm.experiment_id or ""
    if not is_own(experiment_id):
        agent.tasks += 1
        agent.failed += score is None
        if is_censored(first.select):
            return
        agent.timeline.add(first.timestamp, first.adapter_version, score)
        _count(agent.live, first.adapter_version, score)
        if first.adapter_version in agent.live:
            quality = agent.quality.setdefault(first.adapter_version, Quality())
            quality.observe([row.score for row in group], [row.response for row in group], choose_answer(group).score)
    elif ANCHORS in experiment_id:
        _add_anchor(agent, f"{experiment_id}/{first.task_id.rpartition('/')[2]}", score)
    elif first.task_id.startswith(REPLAY_TASKS):
        return
    elif RESCORED not in experiment_id and EVALUATION not in experiment_id:
        _count(agent.held_out, first.adapter_version, score)


def _count(means: dict[str, Mean], version: str, score: float | None) -> None:
    if score is not None and (version in means or len(means) < MOST_VERSIONS):
        means.setdefault(version, Mean()).add(score)


def _add_anchor(agent: AgentScores, run: str, score: float | None) -> None:
    if score is None:
        return
    if not agent.anchors or agent.anchors[-1][0] != run:
        agent.anchors.append((run, Mean()))
    agent.anchors[-1][1].add(score)
