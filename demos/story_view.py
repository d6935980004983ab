"""The story of a demo as tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from demos.books import Account
from demos.story import DemoTurn, Example, Sabotage, Story
from ratchet.experiments.gain import Estimate, Gain, format_gain, format_interval
from schemas.records.decision import Decision
from services.cli.terminal import table
from services.cli.watch.figures import seconds

LONG_S = 600.0
"""The seconds from which a time is shown in minutes."""


def render_story(story: Story) -> Group:
    """Return the demo's own figures first, and what any demo shows."""
    bad = (heading("The bad adapter"), _sabotage(story.sabotage)) if story.rollback else ()
    return Group(
        *story.figures.tables(story.primary),
        heading("Versions trained"),
        _turns_table(story.turns),
        heading("Decisions, each with its evidence (UTC)"),
        _decisions_table(story.decisions),
        *bad,
        heading("The ledger of the whole demo"),
        _books_table(story.books, story.dead_letters),
        _verdict(story.faults, story.seconds),
    )


def heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def gains_table(primary: str, gains: Mapping[str, Gain], note: str, blanked: Estimate | None = None) -> Group:
    """Return a row a gain, under its name, and the note below them. `blanked`: an estimate of the primary alone."""
    shown = table("", "v1.0.0, the base model", f"{primary}, the primary", "difference")
    for name, gain in gains.items():
        before, after, difference = format_gain(gain)
        style = "bold green" if gain.significant else "bold red"
        shown.add_row(name, before, after, Text(difference, style=style))
    if blanked is not None:
        shown.add_row("blanked", "", format_interval(blanked), "")
    return Group(shown, Text(note, style="dim"))


def examples_table(examples: Iterable[Example[Any]]) -> Table:
    """Return what was asked, and the answers before and after, in the colour of right or wrong."""
    found = Table(box=None, show_header=False, pad_edge=False)
    found.add_column(style="dim", no_wrap=True)
    found.add_column()
    for one in examples:
        found.add_row("asked", Text(one.label))
        for when, answer, is_right in zip(("before", "after"), one.answers, one.right, strict=True):
            found.add_row(when, Text(answer, style="green" if is_right else "red"))
        found.add_row("", "")
    return found


def _turns_table(turns: Iterable[DemoTurn]) -> Table:
    columns = ("groups", "samples", "steps", "training", "tasks of proof", "swap")
    shown = table("version", "from", "became", *columns, left=3)
    for turn in turns:
        training = turn.training
        shown.add_row(
            turn.version,
            turn.parent,
            Text(turn.state, style="green" if turn.promoted else "red"),
            f"{training.groups:,}",
            f"{training.samples:,}",
            "–" if training.steps is None else str(training.steps),
            "–" if training.seconds is None else seconds(training.seconds),
            f"{turn.tasks:,}",
            "–" if turn.swap_s is None else seconds(turn.swap_s),
        )
    return shown


def _decisions_table(decisions: Iterable[Decision]) -> Table:
    shown = table("#", "time", "what", "because", left=4)
    for decision in decisions:
        what = f"{decision.move.kind} {_version(decision)}".replace("_", " ")
        by = f"{decision.who}: " if decision.by_operator else ""
        shown.add_row(str(decision.sequence), f"{decision.at:%H:%M:%S}", what, Text(by + decision.reason))
    return shown


def _version(decision: Decision) -> str:
    running = getattr(decision.move, "experiment", None)
    return str(getattr(decision.move, "version", None) or (running.arms[0] if running else ""))


def _sabotage(bad: Sabotage | None) -> Text:
    if bad is None:
        return Text("None was injected: there was no trained primary to turn around.", style="red")
    if not bad.stopped:
        return Text(
            f"{bad.version} was NOT stopped: it is {bad.state} after {bad.tasks} of its tasks", style="bold red"
        )
    return Text(
        f"{bad.version} was rolled back by itself after {bad.tasks} of its tasks ({bad.samples} samples), "
        f"out of {bad.traffic} that users asked meanwhile, {seconds(bad.seconds)} after it was injected",
        style="green",
    )


def _books_table(books: Account, dead_letters: int) -> Table:
    shown = Table(box=None, show_header=False, pad_edge=False)
    shown.add_column()
    shown.add_column(justify="right")
    shown.add_row("tasks asked", f"{books.asked:,}")
    bad = {"tasks lost": books.lost, "tasks failed": books.failed, "samples logged twice": books.logged_twice}
    for name, count in (bad | {"dead letters": dead_letters}).items():
        shown.add_row(name, Text(f"{count:,}", style="red" if count else ""))
    return shown


def _verdict(faults: Sequence[str], seconds: float) -> Text:
    if faults:
        return Text("\nNot as promised: " + "; ".join(faults), style="bold red")
    took = f"{seconds:.0f} s" if seconds < LONG_S else f"{seconds / 60:.0f} min"
    return Text(f"\nAll as promised, in {took}.", style="bold green")
