"""The story of a tools demo as tables. Pure."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from demos.story_view import examples_table, gain_cells, gains_table, heading, render_demo
from demos.tools.story import ToolExample, ToolStory
from ratchet.experiments.gain import format_interval
from services.cli.terminal import table


def render_tool_story(story: ToolStory) -> Group:
    return render_demo(
        story,
        heading("Held-out tasks done, before and after (95 % confidence interval)"),
        _gains(story),
        heading("The first held-out tasks, and what became of one rollout of either version"),
        examples_table((_asked(one), (one.before, one.after), one.done) for one in story.examples),
        heading("What was trained on"),
        _conversations(story),
    )


def _asked(example: ToolExample) -> str:
    files = ", ".join(f"{name} {held}" for name, held in example.task.files.items())
    return f"{example.task.question}  ({files})"


def _gains(story: ToolStory) -> Group:
    found = gains_table(story)
    found.add_row("done", *gain_cells(story.gain))
    found.add_row("blanked", "", format_interval(story.blanked), "")
    note = (
        "Share of single rollouts at temperature 1 after which the files are as they must be, by a verifier that "
        f"nobody in the fleet has. {story.gain.before.tasks} workspaces that no training saw, the same before and "
        "after; means paired by task, normal approximation. "
        "Blanked: every tool brings ?, so that nobody can know the sum."
    )
    return Group(found, Text(note, style="dim"))


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
