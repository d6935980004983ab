"""The result as a picture: the share of held-out answers exactly right, before and after, as SVG. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from demos.real.story import RealStory
from demos.real.view import NAMES
from ratchet.experiments.gain import Estimate

WIDTH, LEFT, RIGHT, TOP, BAR, GAP = 760, 90, 60, 64, 20, 22
BEFORE, AFTER, INK, MUTED, LINE = "#a9aeb8", "#3454d1", "#1c1d20", "#5f646d", "#e2e2dd"


def picture(story: RealStory) -> str:
    """Stands by itself, on a ground of its own, so that it is legible by day and by night."""
    height = TOP + len(story.gains) * (2 * BAR + GAP) + 50
    parts = "\n".join(_parts(story, height))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" font-size="13" '
        f'font-family="system-ui, sans-serif" fill="{INK}">\n<title>{escape(_title(story))}</title>\n{parts}\n</svg>\n'
    )


def _title(story: RealStory) -> str:
    before, after = story.gains["all"].before, story.gains["all"].after
    return f"{story.model}: of its held-out answers {before.mean:.2f} were exactly right before, {after.mean:.2f} after"


def _parts(story: RealStory, height: int) -> Iterator[str]:
    yield f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="12" fill="#fff" stroke="{LINE}"/>'
    yield _text(20, 28, f"{story.model}: held-out answers that are exactly right", weight=600, size=15)
    yield f'<rect x="20" y="40" width="12" height="12" fill="{BEFORE}"/>'
    yield _text(38, 51, "v1.0.0, as it was fetched", colour=MUTED)
    yield f'<rect x="210" y="40" width="12" height="12" fill="{AFTER}"/>'
    learned = f"{story.primary}, learned from {_samples(story):,} scored answers, promoted on live traffic"
    yield _text(228, 51, learned, colour=MUTED)
    bottom = height - 46
    for tenth in (0.0, 0.25, 0.5, 0.75, 1.0):
        yield f'<line x1="{_x(tenth):.1f}" x2="{_x(tenth):.1f}" y1="{TOP}" y2="{bottom}" stroke="{LINE}"/>'
        yield _text(_x(tenth), bottom + 16, f"{tenth:.0%}", colour=MUTED, anchor="middle")
    for row, (name, found) in enumerate(story.gains.items()):
        top = TOP + 8 + row * (2 * BAR + GAP)
        yield _text(LEFT - 12, top + BAR + 4, NAMES[name], anchor="end", weight=600)
        yield from _bar(top, found.before, BEFORE)
        yield from _bar(top + BAR, found.after, AFTER)
    tasks = story.gains["all"].before.tasks
    note = f"{tasks} tasks of sentences and values that no training saw · 95 % intervals · seed {story.seed}"
    yield _text(WIDTH - 20, height - 12, note, colour=MUTED, anchor="end", size=11)


def _bar(top: float, value: Estimate, colour: str) -> Iterator[str]:
    low, high, middle = max(0.0, value.low), min(1.0, value.high), top + BAR / 2
    width = _x(value.mean) - _x(0)
    yield f'<rect x="{_x(0):.1f}" y="{top + 1}" width="{width:.1f}" height="{BAR - 2}" fill="{colour}"/>'
    for stroke, thick in (("#fff", 4), (INK, 1.5)):  # so that it is seen on the bar and beside it
        ends = f'x1="{_x(low):.1f}" x2="{_x(high):.1f}" y1="{middle}" y2="{middle}"'
        yield f'<line {ends} stroke="{stroke}" stroke-width="{thick}"/>'
    yield _text(_x(high) + 6, middle + 4, f"{value.mean:.2f}")


def _x(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _samples(story: RealStory) -> int:
    return sum(turn.training.samples for turn in story.turns if turn.promoted)


def _text(
    x: float, y: float, text: str, *, colour: str = INK, anchor: str = "start", weight: int = 400, size: int = 13
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}" font-weight="{weight}" '
        f'font-size="{size}">{escape(text)}</text>'
    )
