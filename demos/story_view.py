"""The story of a demo as tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from demos.books import Account
from demos.held_out_view import counts_table
from demos.story import DemoStory, DemoTurn, Story
from ratchet.experiments.gain import MARGIN, Gain, format_gain, format_interval
from schemas.records.decision import Decision
from services.cli.terminal import table
from services.cli.watch.view import seconds

LONG_S = 600.0
"""From here on minutes are told."""


def render_story(story: Story) -> Group:
    return render_demo(
        story,
        heading("Held-out tasks, before and after (95 % confidence interval)"),
        _gains(story),
        then=(heading("The bad adapter"), _sabotage(story)),
    )


def render_demo(story: DemoStory, *first: RenderableType, then: Sequence[RenderableType] = ()) -> Group:
    """What any demo shows, with its own figures `first`, and what was to happen `then` behind its decisions."""
    return Group(
        *first,
        heading("Versions trained"),
        _turns_table(story.turns),
        heading("Decisions, each with its evidence (UTC)"),
        _decisions_table(story.decisions),
        *then,
        heading("The ledger of the whole demo"),
        _books_table(story.books, story.dead_letters),
        _verdict(story.faults, story.seconds),
    )


def heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _gains(story: Story) -> Group:
    shown = gains_table(story)
    shown.add_row("served", *gain_cells(story.served))
    shown.add_row("single", *gain_cells(story.verifier))
    shown.add_row("judge", *gain_cells(story.judge))
    note = (
        f"{_saved(story)} Means over {story.verifier.before.tasks} tasks, paired by task, normal approximation. "
        "Served is what a user gets, the best-scored of the group; single is one sample; both right or wrong by a "
        "verifier that nobody in the fleet has. The judge is the bigger model, whose scores of single samples the "
        "fleet learned from."
    )
    return Group(shown, Text(note, style="dim"))


def _saved(story: Story) -> str:
    saved = story.saved
    if saved.needed is None or saved.difference is None:
        return f"No number of samples up to {saved.group} is proved as good as v1.0.0's best of {saved.group}."
    difference = format_interval(saved.difference, signed=True)
    return (
        f"The best of {saved.needed} of {story.primary} is proved as good as v1.0.0's best of {saved.group} "
        f"({difference}, margin {MARGIN}): {saved.samples} of {saved.group} samples saved."
    )


def gains_table(story: DemoStory) -> Table:
    """To be filled with a row a figure: its name and `gain_cells`."""
    return table("", "v1.0.0, the base model", f"{story.primary}, the primary", "difference")


def gain_cells(gain: Gain) -> tuple[str | Text, ...]:
    style = "bold green" if gain.significant else "bold red"
    before, after, difference = format_gain(gain)
    return before, after, Text(difference, style=style)


def examples_table(examples: Iterable[tuple[str, tuple[str, str], tuple[bool, bool]]]) -> Table:
    """Of each what was asked, the answers before and after, and whether they are right."""
    found = Table(box=None, show_header=False, pad_edge=False)
    found.add_column(style="dim", no_wrap=True)
    found.add_column()
    for asked, answers, right in examples:
        found.add_row("asked", Text(asked))
        for when, answer, is_right in zip(("before", "after"), answers, right, strict=True):
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


def _sabotage(story: Story) -> Text:
    bad = story.sabotage
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
    return counts_table(
        ("tasks asked", books.asked, None),
        ("tasks lost", books.lost, 0),
        ("tasks failed", books.failed, 0),
        ("samples logged twice", books.logged_twice, 0),
        ("dead letters", dead_letters, 0),
    )


def _verdict(faults: Sequence[str], seconds: float) -> Text:
    if faults:
        return Text("\nNot as promised: " + "; ".join(faults), style="bold red")
    took = f"{seconds:.0f} s" if seconds < LONG_S else f"{seconds / 60:.0f} min"
    return Text(f"\nAll as promised, in {took}.", style="bold green")
