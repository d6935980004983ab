"""The result of the real demo: a picture of the answers before and after, and a page with it and the story. Pure.

Texts come from a model: they are escaped, and the page's policy lets nothing act or be loaded.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from html import escape

from rich.console import Console

from demos.story import Story
from demos.story_view import render_story
from ratchet.experiments.gain import Estimate, Gain

RESULT = "result.html"
"""The page's name in the demo's folder; the picture lies beside it as .svg."""
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>Ratchet: a real model</title>
<style>
{stylesheet}
body {{ color: {foreground}; background: {background}; max-width: 860px; margin: 32px auto; padding: 0 16px; }}
svg {{ max-width: 100%; height: auto; display: block; }} pre {{ overflow-x: auto; }}
</style>
</head>
<body>
<h1>TITLE</h1>
PICTURE
<pre><code>{code}</code></pre>
<p>Scores over time, training curves and the experiments' evidence: <a href="report.html">the fleet's report</a>, beside
this page.</p>
</body>
</html>
"""


def result_page(drawn: str, model: str, story: Story) -> str:
    """Return the picture, and below it what the command shows."""
    console = Console(record=True, width=110, file=io.StringIO())
    console.print(render_story(story))
    page = console.export_html(code_format=PAGE)
    return page.replace("TITLE", escape(f"{model}, before and after"), 1).replace("PICTURE", drawn, 1)


WIDTH, LEFT, RIGHT, TOP, BAR, GAP = 760, 90, 60, 64, 20, 22
BEFORE, AFTER, INK, MUTED, LINE = "#a9aeb8", "#3454d1", "#1c1d20", "#5f646d", "#e2e2dd"


def picture(model: str, gains: Mapping[str, Gain], story: Story, seed: int) -> str:
    """Return the gains as SVG, each under its name; the last one is of all.

    It stands by itself, on a ground of its own, so that it is legible by day and by night.
    """
    height = TOP + len(gains) * (2 * BAR + GAP) + 50
    everything = list(gains.values())[-1]
    before, after = everything.before, everything.after
    title = f"{model}: of its held-out answers {before.mean:.2f} were exactly right before, {after.mean:.2f} after"
    parts = "\n".join(_parts(model, gains, story, seed, height))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" font-size="13" '
        f'font-family="system-ui, sans-serif" fill="{INK}">\n<title>{escape(title)}</title>\n{parts}\n</svg>\n'
    )


def _parts(model: str, gains: Mapping[str, Gain], story: Story, seed: int, height: int) -> Iterator[str]:
    yield f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="12" fill="#fff" stroke="{LINE}"/>'
    yield _text(20, 28, f"{model}: held-out answers that are exactly right", weight=600, size=15)
    yield f'<rect x="20" y="40" width="12" height="12" fill="{BEFORE}"/>'
    yield _text(38, 51, "v1.0.0, as it was fetched", colour=MUTED)
    yield f'<rect x="210" y="40" width="12" height="12" fill="{AFTER}"/>'
    samples = sum(turn.training.samples for turn in story.turns if turn.promoted)
    learned = f"{story.primary}, learned from {samples:,} scored answers, promoted on live traffic"
    yield _text(228, 51, learned, colour=MUTED)
    bottom = height - 46
    for tenth in (0.0, 0.25, 0.5, 0.75, 1.0):
        yield f'<line x1="{_x(tenth):.1f}" x2="{_x(tenth):.1f}" y1="{TOP}" y2="{bottom}" stroke="{LINE}"/>'
        yield _text(_x(tenth), bottom + 16, f"{tenth:.0%}", colour=MUTED, anchor="middle")
    for row, (name, found) in enumerate(gains.items()):
        top = TOP + 8 + row * (2 * BAR + GAP)
        yield _text(LEFT - 12, top + BAR + 4, name, anchor="end", weight=600)
        yield from _bar(top, found.before, BEFORE)
        yield from _bar(top + BAR, found.after, AFTER)
    tasks = found.before.tasks
    note = f"{tasks} tasks of sentences and values that no training saw · 95 % intervals · seed {seed}"
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


def _text(
    x: float, y: float, text: str, *, colour: str = INK, anchor: str = "start", weight: int = 400, size: int = 13
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}" font-weight="{weight}" '
        f'font-size="{size}">{escape(text)}</text>'
    )
