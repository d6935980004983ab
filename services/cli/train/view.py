"""A training run in the terminal: a bar with the figures of the step, then how it ended. On a pipe: a line a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from time import monotonic
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from ratchet.training_runs.progress import ProgressTracker, RunProgressRecord
from ratchet.training_runs.report import is_number
from schemas.api.runs import RunProgress, RunView
from schemas.records.adapter_state import AdapterState
from schemas.records.registry import AgentAdapters
from services.cli.terminal import table

FIGURES = (("loss", "loss", "+.4f"), ("clip_fraction", "clipped", ".1%"), ("gap", "drift", ".3f"), ("kl", "kl", ".4f"))
ON_ITS_WAY = (AdapterState.TRAINED, AdapterState.VALIDATED, AdapterState.CANARY)
NOTHING_AGAINST_IT = "a dry run stops here"
STAGES = {
    "starting": "starting the trainer",
    "reading": "reading the log",
    "loading": "loading samples",
    "loading-model": "loading the model",
    "comparing": "holding the parent against the log",
}
"""What they are called for people; the others by their own names."""


class TrainView:
    """`show_event` takes what the trainer tells, `show` how a run of others stands on disk."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tracker = ProgressTracker()
        self._said: tuple[str, int | None] = ("", None)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[done]}"),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.fields[figures]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(STAGES["starting"], total=None, figures="", done="", left="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """For a question."""
        self._progress.stop()
        yield
        self._progress.start()

    def show_event(self, said: Mapping[str, Any]) -> None:
        if "warning" in said:
            self._console.print(f"warning: {said['warning']}", markup=False, style="yellow")
            return
        self._tracker.record(said, monotonic())
        self._show(self._tracker.at(datetime.now(UTC)).progress, said)

    def show(self, record: RunProgressRecord) -> None:
        """With the figures of the last step that was written down."""
        last = {name: points[-1][1] for name, points in record.curves.items() if points}
        age_s = (datetime.now(UTC) - record.progress.at).total_seconds()
        self._show(aged(record.progress, age_s), last)

    def _show(self, progress: RunProgress, figures: Mapping[str, Any]) -> None:
        stage, step = STAGES.get(progress.stage, progress.stage), progress.step
        left, shown = time_left(progress.seconds_left), figures_line(figures)
        in_steps = progress.steps is not None and progress.stage == "training"
        if not self._console.is_terminal:
            self._print(stage, step, f"step {step} of {progress.steps}  {shown}  {left}" if in_steps and step else "")
            return
        self._progress.update(
            self._task,
            description=stage,
            completed=progress.share or 0.0,
            total=None if progress.share is None else 1.0,
            done=f"{step}/{progress.steps}" if in_steps else "",
            left=left,
        )
        if shown or not in_steps:
            self._progress.update(self._task, figures=shown)

    def _print(self, stage: str, step: int | None, line: str) -> None:
        """Each stage, and each step, once."""
        if (stage, step) != self._said:
            self._said = (stage, step)
            self._console.print((line or stage).rstrip(), markup=False)


def figures_line(said: Mapping[str, Any]) -> str:
    return "  ".join(f"{label} {said[name]:{form}}" for name, label, form in FIGURES if name in said)


def aged(progress: RunProgress, age_s: float) -> RunProgress:
    """As it was said so long ago: that much less is left."""
    if progress.seconds_left is None:
        return progress
    return progress.model_copy(update={"seconds_left": max(0.0, progress.seconds_left - max(0.0, age_s))})


def time_left(seconds: float | None) -> str:
    """As people say it; empty where it is not known."""
    if seconds is None:
        return ""
    if seconds < 90:
        return f"{seconds:.0f} s left"
    minutes = round(seconds / 60)
    return f"{minutes} min left" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min left"


def trained(view: RunView) -> str | None:
    """The version, and how right the run was about its time."""
    told, took = (view.metrics.get(f"{name}_after_ten_steps_s") for name in ("told", "took"))
    if view.adapter_version is None or not (is_number(told) and is_number(took)):
        return view.adapter_version
    return f"{view.adapter_version}; after ten steps {told:.0f} s left by its word, {took:.0f} s in truth"


def standing(view: RunView, *, at_work: bool) -> str:
    """How far a run is, in a few words. `at_work`: a process is at it."""
    if view.ended:
        return trained(view) or (view.reason or "").partition("\n")[0]
    progress = view.progress
    if not at_work:
        where = f"left at step {progress.step} of {progress.steps}" if progress and progress.step else "not at work"
        return f"{where}: a trainer of the fleet takes it up"
    if progress is None:
        return STAGES["starting"]
    stage = STAGES.get(progress.stage, progress.stage)
    share = "" if progress.share is None or progress.stage == "training" else f"{progress.share:.0%}"
    step = f"step {progress.step} of {progress.steps}" if progress.stage == "training" else share
    return ", ".join(part for part in (f"{stage} {step}".rstrip(), time_left(progress.seconds_left)) if part)


def render_runs(runs: Sequence[tuple[RunView, bool]]) -> Table:
    """The newest last; with each whether a process is at it."""
    shown = table("run", "agent", "state", "asked at", "how it stands", left=5)
    for column in shown.columns:
        column.no_wrap = True
    for view, at_work in runs:
        asked = f"{view.asked_at:%m-%d %H:%M}" if view.asked_at else ""
        state = "left" if view.state == "running" and not at_work else view.state
        shown.add_row(view.run_id, view.agent_id, state, asked, standing(view, at_work=at_work))
    return shown


def ended_well(outcome: Mapping[str, Any], *, dry_run: bool) -> bool:
    if dry_run:
        return str(outcome["reason"]).startswith(NOTHING_AGAINST_IT)
    return bool(outcome["status"] == "trained")


def render_outcome(outcome: Mapping[str, Any], *, dry_run: bool) -> Group:
    """What was in the log, and the sentence."""
    counted = outcome.get("counts", {})
    counts = table("of the log", "count")
    for name, count in counted.items():
        counts.add_row(_part(name), f"{count:,}")
    style = "green" if ended_well(outcome, dry_run=dry_run) else "red"
    return Group(*([counts] if counted else []), Text(_sentence(outcome, dry_run=dry_run), style=style))


def what_follows(outcome: Mapping[str, Any], least: int) -> str:
    """Of a trained version. `least`: finished tasks of each arm before a promotion."""
    version, parent = outcome["adapter_version"], outcome["parent_version"]
    return (
        f"What follows by itself while the fleet is up: the gate (does {version} load, does it answer logged prompts "
        f"as well as {parent}), then a live test against the primary on the tasks that users send: at least {least} of "
        "each before a promotion. ratchet experiment show tells how it stands; ratchet adapters show "
        f"{version} what was decided"
    )


def on_its_way(agent: AgentAdapters, parent: str | None) -> str | None:
    """What a training that is begun now has to wait for, as a sentence; None where nothing."""
    waiting = [entry for entry in agent.versions.values() if entry.state in ON_ITS_WAY]
    if not waiting and not agent.frozen:
        return None
    if not waiting:
        return "The agent is frozen: what is trained now is tried once ratchet adapters unfreeze was typed."
    named = ", ".join(f"{entry.version} ({entry.state})" for entry in waiting)
    return (
        f"{named} is on its way through gate and live test: what is trained now starts from "
        f"{parent or agent.primary} and is tried after it. The fleet itself asks for no training until then."
    )


def _part(name: str) -> str:
    """What a count is of: `groups.zero_spread` were left out, `groups` used."""
    kind, _, reason = name.partition(".")
    if reason:
        return f"{kind} left out: {reason.replace('_', ' ')}"
    return "lines read" if kind == "lines" else f"{kind} used"


def _sentence(outcome: Mapping[str, Any], *, dry_run: bool) -> str:
    if outcome["status"] == "trained":
        return (
            f"{outcome['adapter_version']} is trained from {outcome['parent_version']} and registered; "
            f"`ratchet adapters show {outcome['adapter_version']}` tells more"
        )
    if ended_well(outcome, dry_run=dry_run):
        return "nothing speaks against training on it"
    return f"{outcome['status']}: {outcome['reason']}"
