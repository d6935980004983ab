"""The story of a real demo as tables. Pure."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ratchet.cli.demo.real.story import Example, RealStory
from ratchet.cli.demo.story_view import books_table, decisions_table, gain_cells, heading, turns_table, verdict
from ratchet.cli.terminal import table

NAMES = {"order": "orders", "date": "dates", "all": "all"}


def render_real_story(story: RealStory) -> Group:
    return Group(
        heading("Held-out tasks exactly right, before and after (95 % confidence interval)"),
        _gains(story),
        heading("The first held-out tasks, and one answer of either version"),
        _examples(story),
        heading("Versions trained"),
        turns_table(story.turns),
        heading("Decisions, each with its evidence (UTC)"),
        decisions_table(story.decisions),
        heading("The ledger of the whole demo"),
        books_table(story.books, story.dead_letters),
        verdict(story.faults, story.seconds),
    )


def _gains(story: RealStory) -> Group:
    shown = table("", "v1.0.0, the base model", f"{story.primary}, the primary", "difference")
    for name, found in story.gains.items():
        shown.add_row(NAMES[name], *gain_cells(found))
    note = (
        f"Share of single answers at temperature {story.temperature:g} that a verifier which nobody in the fleet has "
        f"finds exactly right. {story.gains['all'].before.tasks} tasks whose sentences and values no training saw, the "
        "same prompts before and after; means paired by task, normal approximation."
    )
    return Group(shown, Text(note, style="dim"))


def _examples(story: RealStory) -> Table:
    shown = Table(box=None, show_header=False, pad_edge=False)
    shown.add_column(style="dim", no_wrap=True)
    shown.add_column()
    for example in story.examples:
        before, after = (Text(text, style="green" if right else "red") for text, right in _answers(example))
        shown.add_row("asked", Text(example.text))
        shown.add_row("before", before)
        shown.add_row("after", after)
        shown.add_row("", "")
    return shown


def _answers(example: Example) -> tuple[tuple[str, bool], tuple[str, bool]]:
    right = example.right
    return (example.before, right[0]), (example.after, right[1])
