"""A training run in the terminal: a bar with the figures of the step, then how it ended. On a pipe: a line a step."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from ratchet.cli.terminal import table

FIGURES = (("loss", "loss", "+.4f"), ("clip_fraction", "clipped", ".1%"), ("gap", "drift", ".3f"), ("kl", "kl", ".4f"))
NOTHING_AGAINST_IT = "a dry run stops here"


class TrainView:
    """`show` takes what the trainer tells."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=None, figures="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, said: Mapping[str, Any]) -> None:
        step = said.get("step", 0)
        self._progress.update(
            self._task, description=said["stage"], completed=step, total=said.get("steps"), figures=figures_line(said)
        )
        if not self._console.is_terminal and step:
            self._console.print(f"step {step} of {said['steps']}  {figures_line(said)}", markup=False)


def figures_line(said: Mapping[str, Any]) -> str:
    return "  ".join(f"{label} {said[name]:{form}}" for name, label, form in FIGURES if name in said)


def ended_well(outcome: Mapping[str, Any], *, dry_run: bool) -> bool:
    if dry_run:
        return str(outcome["reason"]).startswith(NOTHING_AGAINST_IT)
    return bool(outcome["status"] == "trained")


def render_outcome(outcome: Mapping[str, Any], *, dry_run: bool) -> Group:
    """What was in the log, and the sentence."""
    counts = table("of the log", "count")
    for name, count in outcome["counts"].items():
        counts.add_row(_part(name), f"{count:,}")
    style = "green" if ended_well(outcome, dry_run=dry_run) else "red"
    return Group(*([counts] if outcome["counts"] else []), Text(_sentence(outcome, dry_run=dry_run), style=style))


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
