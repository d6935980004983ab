"""All the report shows, gathered from the registry, the ledger, the adapters' folders and the logs. Reads only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from ratchet.adapters.manifest import version_key
from ratchet.adapters.registry import RegistryStore
from ratchet.cli.report.score_stats import AgentScores, LogScores, read_scores
from ratchet.experiments.records import ExperimentRecord, experiments
from ratchet.experiments.view import ExperimentView, views_of
from ratchet.service.errors import JournalError, RegistryError
from ratchet.training_runs.report import TrainingReport, training_reports
from schemas.records.decision import Decision
from schemas.records.registry import AdapterEntry, AgentAdapters, Registry

OfAgent = TypeVar("OfAgent", Decision, ExperimentRecord)

MOST_EXPERIMENTS = 40
MOST_VERSIONS = 60
MOST_DECISIONS = 1000
"""The newest are shown, so that a page about years of decisions still opens."""


@dataclass(frozen=True, slots=True)
class AgentReport:
    """One agent. `decisions_before` and the like say how many older ones are not on the page."""

    agent_id: str
    adapters: AgentAdapters
    entries: tuple[AdapterEntry, ...]
    scores: AgentScores
    looks: tuple[ExperimentView, ...]
    training: tuple[TrainingReport, ...]
    decisions: tuple[Decision, ...]
    decisions_before: int = 0
    experiments_before: int = 0
    versions_before: int = 0

    def as_dict(self) -> dict[str, Any]:
        means = {"live": self.scores.live, "held_out": self.scores.held_out}
        return {
            "agent_id": self.agent_id,
            "primary": self.adapters.primary,
            "tasks": self.scores.tasks,
            "versions": {entry.version: entry.state.value for entry in self.entries},
            "scores": {
                kind: {
                    version: {"tasks": mean.count, "mean": mean.mean, "half_width": mean.half_width}
                    for version, mean in of_kind.items()
                }
                for kind, of_kind in means.items()
            },
            "experiments": [look.record.as_dict() for look in self.looks],
            "decisions": len(self.decisions) + self.decisions_before,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """`troubles`: what could not be read, and why, in sentences."""

    agents: tuple[AgentReport, ...]
    lines: int
    troubles: tuple[str, ...]
    made_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def as_dict(self) -> dict[str, Any]:
        return {
            "made_at": self.made_at.isoformat(),
            "lines": self.lines,
            "troubles": list(self.troubles),
            "agents": [agent.as_dict() for agent in self.agents],
        }


def gather(logs_dir: Path, adapters_dir: Path, agents: Iterable[str] = ()) -> Report:
    """`agents` are on the page even where nothing is known of them. What can't be read is said, not raised."""
    troubles: list[str] = []
    registry, decisions = _decided(adapters_dir, troubles)
    scores = _scored(logs_dir, troubles)
    records = _experiments(decisions, troubles)
    names = list(dict.fromkeys([*agents, *registry.agents, *scores.agents]))
    looks = views_of([one for name in names for one in _of(name, records)[-MOST_EXPERIMENTS:]], logs_dir)
    shown = tuple(
        _agent(
            name,
            registry.agent(name),
            _of(name, decisions),
            scores.agents.get(name, AgentScores()),
            tuple(look for look in looks if look.record.agent_id == name),
            adapters_dir,
            experiments_before=max(0, len(_of(name, records)) - MOST_EXPERIMENTS),
        )
        for name in names
    )
    return Report(shown, scores.lines, tuple(troubles))


def _decided(adapters_dir: Path, troubles: list[str]) -> tuple[Registry, list[Decision]]:
    store = RegistryStore(adapters_dir)
    try:
        return store.read(), [decision for decision, _ in store.ledger.read()]
    except RegistryError as error:
        troubles.append(str(error))
        return Registry(), []


def _scored(logs_dir: Path, troubles: list[str]) -> LogScores:
    try:
        scores = read_scores(logs_dir)
    except JournalError as error:
        troubles.append(f"scores: {error}")
        return LogScores()
    if scores.bad_lines:
        troubles.append(f"{scores.bad_lines:,} lines of the log can't be read and are left out: ratchet log tail")
    return scores


def _agent(
    name: str,
    adapters: AgentAdapters,
    decisions: list[Decision],
    scores: AgentScores,
    looks: tuple[ExperimentView, ...],
    adapters_dir: Path,
    *,
    experiments_before: int,
) -> AgentReport:
    entries = sorted(adapters.versions.values(), key=lambda entry: version_key(entry.version))
    newest = entries[-MOST_VERSIONS:]
    return AgentReport(
        agent_id=name,
        adapters=adapters,
        entries=tuple(newest),
        scores=scores,
        looks=looks,
        training=tuple(training_reports(adapters_dir, newest)),
        decisions=tuple(decisions[-MOST_DECISIONS:]),
        decisions_before=max(0, len(decisions) - MOST_DECISIONS),
        experiments_before=experiments_before,
        versions_before=max(0, len(entries) - MOST_VERSIONS),
    )


def _of(agent_id: str, items: Iterable[OfAgent]) -> list[OfAgent]:
    return [item for item in items if item.agent_id == agent_id]


def _experiments(decisions: list[Decision], troubles: list[str]) -> list[ExperimentRecord]:
    try:
        return experiments(decisions)
    except RegistryError as error:
        troubles.append(f"experiments: {error}")
        return []
