"""All the report shows, gathered from the registry, the ledger, the adapters' folders and the logs. Reads only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from ratchet.adapters.agent_view import agent_view
from ratchet.adapters.manifest import version_key
from ratchet.adapters.registry import RegistryStore
from ratchet.experiments.records import ExperimentRecord, experiments
from ratchet.experiments.view import ExperimentView, views_of
from ratchet.runs.progress import TrainingReport, training_reports
from ratchet.service.errors import JournalError, RegistryError
from schemas.api.adapters import AgentView
from schemas.messages.base import AgentId
from schemas.records.decision import Decision
from schemas.records.registry import Registry
from services.cli.report.score_stats import AgentScores, LogScores, read_scores

AGENT_ID = TypeAdapter(AgentId)
OfAgent = TypeVar("OfAgent", Decision, ExperimentRecord)

MOST_EXPERIMENTS = 40
MOST_VERSIONS = 60
MOST_DECISIONS = 1000
"""The newest are shown, so that a page about years of decisions still opens."""


@dataclass(frozen=True, slots=True)
class AgentReport:
    """One agent. `decisions_before` and the like say how many older ones are not on the page."""

    view: AgentView
    scores: AgentScores
    experiments: tuple[ExperimentView, ...]
    training: tuple[TrainingReport, ...]
    decisions: tuple[Decision, ...]
    decisions_before: int = 0
    experiments_before: int = 0
    versions_before: int = 0

    def data(self) -> dict[str, Any]:
        """All that the page draws."""
        return {
            "agent": self.view,
            "scores": self.scores.data(),
            "experiments": [one.detail() for one in self.experiments],
            "training": self.training,
            "decisions": self.decisions,
            "older": {
                "versions": self.versions_before,
                "experiments": self.experiments_before,
                "decisions": self.decisions_before,
            },
        }

    def as_dict(self) -> dict[str, Any]:
        return {
            "agent_id": self.view.agent_id,
            "primary": self.view.primary,
            "tasks": self.scores.tasks,
            "versions": {one.version: one.state.value for one in self.view.versions},
            "scores": self.scores.means(),
            "quality": self.scores.qualities(),
            "experiments": [one.record.as_dict() for one in self.experiments],
            "decisions": len(self.decisions) + self.decisions_before,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """`troubles`: what could not be read, and why, in sentences."""

    agents: tuple[AgentReport, ...]
    lines: int
    troubles: tuple[str, ...]
    made_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def data(self) -> dict[str, Any]:
        """All that the page draws."""
        return {
            "made_at": self.made_at,
            "lines": self.lines,
            "troubles": self.troubles,
            "agents": [agent.data() for agent in self.agents],
        }

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
    registry, decisions = _read_decisions(adapters_dir, troubles)
    scores = _read_log_scores(logs_dir, troubles)
    records = _experiments(decisions, troubles)
    names = [name for name in dict.fromkeys([*agents, *registry.agents, *scores.agents]) if _is_named(name, troubles)]
    tried = views_of([one for name in names for one in _of(name, records)[-MOST_EXPERIMENTS:]], logs_dir)
    shown = tuple(
        _agent(
            name,
            registry,
            _of(name, decisions),
            scores.agents.get(name, AgentScores()),
            tuple(one for one in tried if one.record.agent_id == name),
            adapters_dir,
            experiments_before=max(0, len(_of(name, records)) - MOST_EXPERIMENTS),
        )
        for name in names
    )
    return Report(shown, scores.lines, tuple(troubles))


def _is_named(name: str, troubles: list[str]) -> bool:
    try:
        AGENT_ID.validate_python(name)
    except ValidationError:
        troubles.append(f"scores: {name!r} is in the log and can't be an agent's name")
        return False
    return True


def _read_decisions(adapters_dir: Path, troubles: list[str]) -> tuple[Registry, list[Decision]]:
    store = RegistryStore(adapters_dir)
    try:
        return store.read(), [decision for decision, _ in store.ledger.read()]
    except RegistryError as error:
        troubles.append(str(error))
        return Registry(), []


def _read_log_scores(logs_dir: Path, troubles: list[str]) -> LogScores:
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
    registry: Registry,
    decisions: list[Decision],
    scores: AgentScores,
    tried: tuple[ExperimentView, ...],
    adapters_dir: Path,
    *,
    experiments_before: int,
) -> AgentReport:
    view, entries = agent_view(registry, name), registry.agent(name).versions
    versions = sorted(view.versions, key=lambda one: version_key(one.version))
    newest = versions[-MOST_VERSIONS:]
    runs = training_reports(adapters_dir, [entries[one.version] for one in newest])
    return AgentReport(
        view=view.model_copy(update={"versions": newest}),
        scores=scores,
        experiments=tried,
        training=tuple(run for run in runs if run.curves or run.card),
        decisions=tuple(decisions[-MOST_DECISIONS:]),
        decisions_before=max(0, len(decisions) - MOST_DECISIONS),
        experiments_before=experiments_before,
        versions_before=len(versions) - len(newest),
    )


def _of(agent_id: str, items: Iterable[OfAgent]) -> list[OfAgent]:
    return [item for item in items if item.agent_id == agent_id]


def _experiments(decisions: list[Decision], troubles: list[str]) -> list[ExperimentRecord]:
    try:
        return experiments(decisions)
    except RegistryError as error:
        troubles.append(f"experiments: {error}")
        return []
