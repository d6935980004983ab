"""Training runs in the terminal: list them, look on at one with a bar and the figures of the step, say how it ended.

It reads the adapters folder that all share, so it needs neither broker nor trainer. On a pipe it prints a line a step.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any, Self

from rich.console import Console, Group
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from ratchet.runs.progress import ProgressTracker, RunProgressRecord, is_number
from ratchet.runs.run import NOTHING_AGAINST_IT
from ratchet.runs.store import RunFolder, RunStore
from ratchet.service.errors import NotFound, TimedOut
from schemas.api.runs import RunProgress, RunView
from schemas.records.registry import AgentAdapters, EntryState
from services.cli.terminal import say, table

FIGURES = (
    ("loss", "loss", "+.4f"),
    ("held_out_loss", "held-out loss", ".4f"),
    ("held_out_preference", "held-out preference", "+.4f"),
    ("clip_fraction", "clipped", ".1%"),
    ("gap", "drift", ".3f"),
    ("kl", "kl", ".4f"),
)
ON_ITS_WAY = (EntryState.TRAINED, EntryState.VALIDATED, EntryState.CANARY)
STAGES = {
    "starting": "starting the trainer",
    "reading": "reading the log",
    "loading": "loading samples",
    "loading-model": "loading the model",
    "comparing": "holding the parent against the log",
}
"""Names of stages for people. The others have their own names."""


class TrainView:
    """Shows one run. `show_event` takes an event of its trainer, `show` its progress on disk."""

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

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @contextmanager
    def pause_bar(self) -> Iterator[None]:
        """Stop the bar while a question is asked."""
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
        """Show the progress with the figures of the last step that was written down."""
        last = {name: points[-1][1] for name, points in record.curves.items() if points}
        age_s = (datetime.now(UTC) - record.progress.at).total_seconds()
        self._show(subtract_age(record.progress, age_s), last)

    def _show(self, progress: RunProgress, figures: Mapping[str, Any]) -> None:
        stage, step = STAGES.get(progress.stage, progress.stage), progress.step
        left, shown = time_left(progress.seconds_left), format_figures(figures)
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
        """Print each stage, and each step, once."""
        if (stage, step) != self._said:
            self._said = (stage, step)
            self._console.print((line or stage).rstrip(), markup=False)


def format_figures(said: Mapping[str, Any]) -> str:
    return "  ".join(f"{label} {said[name]:{form}}" for name, label, form in FIGURES if name in said)


def subtract_age(progress: RunProgress, age_s: float) -> RunProgress:
    """Return progress that was written so long ago with that much less time left."""
    if progress.seconds_left is None:
        return progress
    return progress.model_copy(update={"seconds_left": max(0.0, progress.seconds_left - max(0.0, age_s))})


def time_left(seconds: float | None) -> str:
    """Return the time left in words; empty where it is not known."""
    if seconds is None:
        return ""
    if seconds < 90:
        return f"{seconds:.0f} s left"
    minutes = round(seconds / 60)
    return f"{minutes} min left" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min left"


def describe_trained(view: RunView) -> str | None:
    """Return the version, and how right the run was about its time."""
    told, took = (view.metrics.get(f"{name}_after_ten_steps_s") for name in ("told", "took"))
    if view.adapter_version is None or not (is_number(told) and is_number(took)):
        return view.adapter_version
    return f"{view.adapter_version}; after ten steps {told:.0f} s left by its word, {took:.0f} s in truth"


def describe_standing(view: RunView, *, at_work: bool) -> str:
    """Say in a few words how far a run is. `at_work`: a process does it."""
    if view.ended:
        return describe_trained(view) or (view.reason or "").partition("\n")[0]
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
    """Return the list as a table. Each run comes with whether a process does it."""
    shown = table("run", "agent", "state", "asked at", "how it stands", left=5, wraps=())
    for view, at_work in runs:
        asked = f"{view.asked_at:%m-%d %H:%M}" if view.asked_at else ""
        state = "left" if view.state == "running" and not at_work else view.state
        shown.add_row(view.run_id, view.agent_id, state, asked, describe_standing(view, at_work=at_work))
    return shown


def ended_well(outcome: Mapping[str, Any], *, dry_run: bool) -> bool:
    if dry_run:
        return bool(outcome["reason"] == NOTHING_AGAINST_IT)
    return bool(outcome["status"] == "trained")


def render_outcome(outcome: Mapping[str, Any], *, dry_run: bool) -> Group:
    """Return a table of what was in the log, and a sentence."""
    counted = outcome.get("counts", {})
    counts = table("of the log", "count")
    for name, count in counted.items():
        counts.add_row(_name_count(name), f"{count:,}")
    style = "green" if ended_well(outcome, dry_run=dry_run) else "red"
    return Group(*([counts] if counted else []), Text(_sentence(outcome, dry_run=dry_run), style=style))


def explain_next_steps(outcome: Mapping[str, Any], least: int) -> str:
    """Say what follows for a trained version. `least`: finished tasks of each arm before a promotion."""
    version, parent = outcome["adapter_version"], outcome["parent_version"]
    return (
        f"What follows by itself while the fleet is up: the gate (does {version} load, does it answer logged prompts "
        f"as well as {parent}), then a live test against the primary on the tasks that users send: at least {least} of "
        f"each before a promotion. ratchet experiment show --agent {outcome['agent_id']} tells how it stands"
    )


def explain_waiting(agent: AgentAdapters, parent: str | None) -> str | None:
    """Say what a training that is begun now has to wait for; None where nothing."""
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


def _name_count(name: str) -> str:
    """Return the name of a count for people: `groups.zero_spread` were left out, `groups` used."""
    kind, _, reason = name.partition(".")
    if reason:
        return f"{kind} left out: {reason.replace('_', ' ')}"
    return "lines read" if kind == "lines" else f"{kind} used"


def _sentence(outcome: Mapping[str, Any], *, dry_run: bool) -> str:
    if outcome["status"] == "trained":
        return (
            f"{outcome['adapter_version']} is trained from {outcome['parent_version']} and registered; "
            f"`ratchet adapters show {outcome['adapter_version']} --agent {outcome['agent_id']}` tells more"
        )
    if ended_well(outcome, dry_run=dry_run):
        return "nothing speaks against training on it"
    return f"{outcome['status']}: {outcome['reason']}"


POLL_S = 1.0
CANCEL_WAIT_S = 120.0
Wait = Callable[[float], object]


class TrainingsHere:
    """Finds and watches the runs of an adapters folder. `wait` is called between two looks."""

    def __init__(self, adapters_dir: Path, agents: Sequence[str], wait: Wait = time.sleep) -> None:
        self.store = RunStore(adapters_dir)
        self._agents = agents
        self._wait = wait

    def choose(self, run_id: str | None, agent: str | None) -> RunFolder:
        """Return the named run; else the one at work, else the newest that is not over. Raises NotFound."""
        if run_id is not None:
            named = self.store.find(run_id)
            if not named:
                raise NotFound(f"there is no training run {run_id!r} here: ratchet train --list")
            return named[0]
        agents = [agent] if agent else self._agents
        for at_work in filter(None, map(self.store.at_work, agents)):
            return at_work
        waiting = [folder for folder in self.store.unfinished_runs() if folder.request.agent_id in agents]
        if not waiting:
            raise NotFound(f"no run of {' or '.join(agents)} is at work or waits for a trainer: ratchet train --list")
        return waiting[-1]

    def watch(self, folder: RunFolder, view: TrainView, *, at_most_s: float | None = None) -> Any:
        """Return its outcome as JSON once it has one. Raises TimedOut, and NotFound where its record is removed."""
        waited, last = 0.0, ""
        while (outcome := folder.outcome) is None:
            if not folder.path.exists():
                raise NotFound("its record was removed: whoever asked for it gave it up")
            if (record := folder.run.progress) is not None and folder.is_taken:
                view.show(record)
            elif (state := self._explain_idle(folder)) != last:
                last = state
                say(state)
            if at_most_s is not None and waited >= at_most_s:
                raise TimedOut(f"{folder.holder} has not ended it within {at_most_s:.0f} s: see what it does")
            self._wait(POLL_S)
            waited += POLL_S
        return json.loads(outcome.encode())

    def _explain_idle(self, folder: RunFolder) -> str:
        if folder.is_taken:
            return f"{folder.holder} begins it"
        busy = self.store.at_work(folder.request.agent_id)
        if busy is not None:
            return f"it waits until {busy.request.request_id} has ended"
        return "nobody is at it: a trainer of the fleet takes it up within half a minute (is one up? ratchet status)"


def describe_run(folder: RunFolder) -> str:
    """Return the first half of a sentence about a run and the process that does it."""
    view = folder.run.view
    return f"run {view.run_id} of agent {view.agent_id}, asked for by {view.asked_by}, is at work ({folder.holder})"
