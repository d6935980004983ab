"""The story of a real demo as tables. Pure."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from demos.real.story import RealStory
from demos.story_view import examples_table, gain_cells, gains_table, heading, render_demo

NAMES = {"order": "orders", "date": "dates", "all": "all"}


def render_real_story(story: RealStory) -> Group:
    return render_demo(
        story,
        heading("Held-out tasks exactly right, before and after (95 % confidence interval)"),
        _gains(story),
        heading("The first held-out tasks, and one answer of either version"),
        examples_table((one.text, (one.before, one.after), one.right) for one in story.examples),
    )


def _gains(story: RealStory) -> Group:
    shown = gains_table(story)
    for name, found in story.gains.items():
        shown.add_row(NAMES[name], *gain_cells(found))
    note = (
        f"Share of single answers at temperature {story.temperature:g} that a verifier which nobody in the fleet has "
        f"finds exactly right. {story.gains['all'].before.tasks} tasks whose sentences and values no training saw, the "
        "same prompts before and after; means paired by task, normal approximation."
    )
    return Group(shown, Text(note, style="dim"))
