"""The story of a tools demo as tables. Pure."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ratchet.cli.demo.story_view import books_table, decisions_table, gain_cells, heading, shown, turns_table, verdict
from ratchet.cli.demo.tools.story import ToolStory
from ratchet.cli.terminal import table


def render_tool_story(story: ToolStory) -> Group:
    return Group(
        heading("Held-out tasks done, before and after (95 % confidence interval)"),
        _gains(story),
        heading("The first held-out tasks, and what became of one rollout of either version"),
        _examples(story),
        heading("What was trained on"),
        _conversations(story),
        heading("Versions trained"),
        turns_table(story.turns),
        heading("Decisions, each with its evidence (UTC)"),
        decisions_table(story.decisions),
        heading("The ledger of the whole demo"),
        books_table(story.books, story.dead_letters),
        verdict(story.faults, story.seconds),
    )


def _gains(story: ToolStory) -> Group:
    found = table("", "v1.0.0, the base model", f"{story.primary}, the primary", "difference")
    found.add_row("done", *gain_cells(story.gain))
    found.add_row("blanked", "", shown(story.blanked), "")
    note = (
        "Share of single rollouts at temperature 1 after which the files are as they must be, by a verifier that "
        f"nobody in the fleet has. {story.gain.before.tasks} workspaces that no training saw, the same before and "
        "after; means paired by task, normal approximation. "
        "Blanked: every tool brings ?, so that nobody can know the sum."
    )
    return Group(found, Text(note, style="dim"))


def _examples(story: ToolStory) -> Table:
    found = Table(box=None, show_header=False, pad_edge=False)
    found.add_column(style="dim", no_wrap=True)
    found.add_column()
    for example in story.examples:
        files = ", ".join(f"{name} {held}" for name, held in example.task.files.items())
        before, after = example.done
        found.add_row("asked", Text(f"{example.task.question}  ({files})"))
        found.add_row("before", Text(example.before, style="green" if before else "red"))
        found.add_row("after", Text(example.after, style="green" if after else "red"))
        found.add_row("", "")
    return found


def _conversations(story: ToolStory) -> Table:
    columns = ("rollouts", "segments", "breaks", "tokens sampled", "trained on", "without advantage", "first gap")
    found = table("version", *columns)
    for one in story.conversations:
        found.add_row(
            one.version,
            f"{one.rollouts:,}",
            f"{one.segments:,}",
            ", ".join(f"{count} {kind}" for kind, count in one.breaks.items()) or "none",
            f"{one.sampled_tokens:,}",
            f"{one.trained_tokens:,}",
            f"{one.without_advantage_tokens:,}",
            Text(f"{one.gap:.1e}", style="red" if one.fault else "green"),
        )
    return found
