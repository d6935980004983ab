"""`ratchet report`: all that was learned, on one HTML page."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from ratchet.adapters.agent_view import agent_view
from ratchet.adapters.manifest import version_key
from ratchet.adapters.registry import RegistryStore
from ratchet.experiments.records import ExperimentRecord, experiments
from ratchet.experiments.view import ExperimentView, views_of
from ratchet.files.atomic_file import replace_file
from ratchet.page.bundle import bundle, styles
from ratchet.runs.progress import TrainingReport, training_reports
from ratchet.service.errors import JournalError, RegistryError
from ratchet.service.settings import FleetSettings
from schemas.api.adapters import AgentView
from schemas.messages.base import AgentId
from schemas.records.decision import Decision
from schemas.records.registry import Registry
from services.cli.fleet.folder import FleetAccess
from services.cli.report.score_stats import AgentScores, LogScores, read_scores
from services.cli.terminal import CommandError, print_json
from services.cli.terminal import out as console


def report(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the page.")] = Path("report.html"),
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Show it in the browser.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON, too.")] = False,
) -> None:
    settings, target = FleetSettings.read(), out.absolute()
    gathered = gather(FleetAccess.here().logs_dir, settings.adapters_dir, settings.agents)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"{target.parent} can't be made: {error}; choose another place with --out") from error
    replace_file(target, page(gathered).encode())
    if json:
        print_json(gathered.as_dict() | {"path": str(target)})
    else:
        console.print(f"The report is in {target}", markup=False)
    if open_:
        typer.launch(target.as_uri())


STYLES = ("vendor/uplot.css", "style/tokens.css", "style/parts.css", "style/figures.css", "style/report.css")
UNPRINTABLE = re.compile(r"\\u(?:202[a-e]|206[6-9])")
"""Characters that turn the direction of the text around them, as JSON writes them."""
PAGE = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")


def page(report: Report) -> str:
    """One HTML document that opens offline: the report's data as JSON, drawn by the web page's own parts. Pure.

    Texts come from users and models. They are data here, never markup; the policy runs our script alone, known by its
    digest, and loads nothing from elsewhere, so that not even a mistake lets a text act.
    """
    script, style = bundle("report.js"), styles(*STYLES)
    return PAGE.format(policy=_policy(script, style), style=style, data=_data(report), script=script)


def _policy(script: str, style: str) -> str:
    allowed = f"script-src {_source(script)}; style-src {_source(style)}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"


def _source(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _data(report: Report) -> str:
    """ASCII without `<`, so that no text ends the element it is in; what is no number is null."""
    plain = to_jsonable_python(report.data(), inf_nan_mode="null")
    return UNPRINTABLE.sub(r"\\ufffd", json.dumps(plain, allow_nan=False)).replace("<", r"\u003c")


AGENT_ID = TypeAdapter(AgentId)
OfAgent = TypeVar("OfAgent", Decision, ExperimentRecord)
T = TypeVar("T")

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
    store = RegistryStore(adapters_dir)
    nothing: tuple[Registry, list[Decision]] = Registry(), []
    registry, decisions = _read(lambda: _read_ledger(store), nothing, "", troubles)
    scores = _read(lambda: read_scores(logs_dir), LogScores(), "scores: ", troubles)
    if scores.bad_lines:
        troubles.append(f"{scores.bad_lines:,} lines of the log can't be read and are left out: ratchet log tail")
    records = _read(lambda: experiments(decisions), list[ExperimentRecord](), "experiments: ", troubles)
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


def _read_ledger(store: RegistryStore) -> tuple[Registry, list[Decision]]:
    return store.read(), [decision for decision, _ in store.ledger.read()]


def _read(read: Callable[[], T], nothing: T, what: str, troubles: list[str]) -> T:
    """Return what is read; `nothing`, with the reason among the troubles, where it can't be."""
    try:
        return read()
    except (JournalError, RegistryError) as error:
        troubles.append(f"{what}{error}")
        return nothing


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
