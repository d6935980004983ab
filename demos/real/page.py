"""The report of a real demo: one HTML page without a script, with the picture and answers before and after. Pure.

Texts come from a model: they are escaped, and the policy lets nothing act or be loaded.
"""

from __future__ import annotations

import itertools
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from html import escape

from demos.real.picture import picture
from demos.real.story import RealStory
from demos.real.view import NAMES
from ratchet.experiments.gain import Gain, format_gain
from ratchet.page.bundle import styles

RESULT = "result.html"
"""The page's name in the demo's folder; the picture lies beside it as .svg."""
OWN_STYLE = """
main { max-width: 860px; margin: 0 auto; padding: 32px 16px; display: grid; gap: 20px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: var(--radius); padding: 16px; }
table { border-collapse: collapse; width: 100%; } td, th { padding: 5px 8px; text-align: left; vertical-align: top; }
tr + tr { border-top: 1px solid var(--line); } svg { max-width: 100%; height: auto; display: block; }
"""
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src '{digest}'; base-uri 'none'">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Ratchet: a real model</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
<p>{summary}</p>
{picture}
<section><h2>Held-out answers that are exactly right</h2>{gains}</section>
<section><h2>Answers before and after</h2>
<p class="muted">The first held-out tasks of each family, whatever became of them, and the first answer of either
version.</p>{examples}</section>
<section><h2>Versions trained</h2>{turns}</section>
<section><h2>Decisions</h2>{decisions}</section>
<p class="muted">Scores over time, training curves and the experiments' evidence: <a href="report.html">the fleet's
report</a>, beside this page.</p>
</main>
</body>
</html>
"""


def real_page(story: RealStory) -> str:
    style = styles("style/tokens.css") + OWN_STYLE
    return PAGE.format(
        digest=f"sha256-{b64encode(sha256(style.encode()).digest()).decode()}",
        style=style,
        title=escape(f"{story.model}, before and after"),
        summary=escape(_summary(story)),
        picture=picture(story),
        gains=_table(("", "v1.0.0", story.primary, "difference"), itertools.starmap(_gain_row, story.gains.items())),
        examples=_examples(story),
        turns=_table(
            ("version", "from", "became", "groups", "samples", "steps", "tasks of proof"),
            (
                (t.version, t.parent, t.state, t.training.groups, t.training.samples, t.training.steps or "–", t.tasks)
                for t in story.turns
            ),
        ),
        decisions=_table(
            ("time (UTC)", "what", "because"),
            ((f"{d.at:%H:%M:%S}", d.move.kind.replace("_", " "), d.reason) for d in story.decisions),
        ),
    )


def _summary(story: RealStory) -> str:
    how = "All as promised" if not story.faults else "Not as promised: " + "; ".join(story.faults)
    return (
        f"{how}. Seed {story.seed}, temperature {story.temperature:g}, {story.seconds / 60:.0f} minutes, "
        f"{story.books.asked:,} tasks, {story.books.lost} lost."
    )


def _gain_row(name: str, found: Gain) -> tuple[str, ...]:
    return NAMES[name], *format_gain(found)


def _examples(story: RealStory) -> str:
    rows = []
    for example in story.examples:
        before, after = example.right
        rows.append(
            f"<tr><td>{escape(example.text)}</td><td>{_answer(example.before, before)}</td>"
            f"<td>{_answer(example.after, after)}</td></tr>"
        )
    return f"<table><tr><th>asked</th><th>before</th><th>after</th></tr>{''.join(rows)}</table>"


def _answer(text: str, right: bool) -> str:
    return f'<span class="mono {"good" if right else "bad"}">{"✓" if right else "✗"} {escape(text)}</span>'


def _table(names: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = ("".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in rows)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in body)}</table>"
