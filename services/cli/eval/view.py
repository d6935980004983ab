"""An evaluation as a table with its intervals drawn, and as a picture. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ratchet.experiments.gain import format_interval
from schemas.records.evaluation import Comparison, Evaluation, Interval
from services.cli.terminal import number, table

CELLS = 15
"""Columns of an interval that is drawn in the terminal: 0 is the middle one."""
WIDTH, LEFT, RIGHT, ROW = 760, 260, 140, 26


def render_evaluation(evaluation: Evaluation) -> Group:
    baseline = evaluation.versions[0].contestant
    head = Text(f"{evaluation.set.name}: {evaluation.set.tasks} tasks, scored by {evaluation.scorer}", style="bold")
    shows_solved = any(one.program or len(one.solved) > 1 for one in evaluation.versions)
    return Group(
        head,
        *_remarks(evaluation),
        *(_table(evaluation, baseline, n) for n in range(len(evaluation.results))),
        *([_solved_table(evaluation)] if shows_solved else []),
    )


def _solved_table(evaluation: Evaluation) -> Table:
    """All tasks of each contestant, then each language and level: of programs, and of sets whose tasks have these."""
    ks = [one.k for one in evaluation.versions[0].solved[0].pass_at]
    shown_ks = sorted({ks[0], ks[-1]})
    has_cost = any(one.cost_per_solved is not None for of in evaluation.versions for one in of.solved)
    heads = ("tokens", "seconds", "cost") if has_cost else ("tokens", "seconds")
    shown = table("", "tasks", "", *(f"pass@{k}" for k in shown_ks), *(f"{of}/solved" for of in heads), left=3)
    for contestant in evaluation.versions:
        for place, one in enumerate(contestant.solved):
            rates = [format_interval(part.rate) for part in one.pass_at if part.k in shown_ks]
            took = [number(one.tokens_per_solved, ",.0f"), number(one.seconds_per_solved, ",.1f")]
            if has_cost:
                took.append(number(one.cost_per_solved, ".4f"))
            kind = one.language or one.level or "all"
            shown.add_row("" if place else Text(contestant.contestant), kind, str(one.tasks), *rates, *took)
    return shown


def _table(evaluation: Evaluation, baseline: str, n: int) -> Table:
    result = evaluation.results[n]
    span = _span(evaluation)
    shown = table("family", "answers", "tasks", baseline, result.contestant, "difference", "", left=2, wraps=())
    for name, kind, found in _rows(evaluation, n):
        drawn = drawn_interval(found.difference, span)
        before, after = f"{found.before.mean:.3f}", f"{found.after.mean:.3f}"
        difference = format_interval(found.difference, signed=True)
        shown.add_row(name, kind, str(found.difference.tasks), before, after, difference, drawn)
    return shown


def _rows(evaluation: Evaluation, n: int) -> Iterator[tuple[str, str, Comparison]]:
    for one in evaluation.results[n].results:
        name = one.family or "all"
        yield name, "single", one.single
        if one.samples > 1:
            yield name, f"best of {one.samples}", one.best


def _remarks(evaluation: Evaluation) -> Iterator[Text]:
    for one in evaluation.versions:
        if one.leaked:
            yield Text(
                f"{one.contestant} was trained on {one.leaked} of these tasks: they count nowhere", style="yellow"
            )
        if one.unchecked:
            yield Text(
                f"{one.unchecked:,} bytes that {one.contestant} was trained on are no longer in the log: not checked",
                style="yellow",
            )
        if one.unanswered:
            yield Text(f"{one.contestant} left {one.unanswered} tasks unanswered", style="red")
        if one.unscored:
            yield Text(f"{one.unscored} answers of {one.contestant} got no score, by a failure of ours", style="yellow")


def drawn_interval(found: Interval, span: float) -> str:
    """Draw an interval from -span to +span: ─ the interval, ● the mean, │ no difference."""

    def cell(value: float) -> int:
        return round((max(-span, min(span, value)) / span + 1.0) / 2.0 * (CELLS - 1))

    cells = ["·"] * CELLS
    cells[CELLS // 2] = "│"
    for place in range(cell(found.low), cell(found.high) + 1):
        cells[place] = "─"
    cells[cell(found.mean)] = "●"
    return "".join(cells)


def _span(evaluation: Evaluation) -> float:
    found = [one.difference for n in range(len(evaluation.results)) for _, _, one in _rows(evaluation, n)]
    return max((abs(end) for one in found for end in (one.low, one.high)), default=1.0) or 1.0


def picture(evaluation: Evaluation) -> str:
    """The differences with their 95 % intervals as SVG, which opens anywhere; without scripts, without fonts."""
    rows = [
        (f"{evaluation.results[n].contestant}  {name}, {kind}", found.difference)
        for n in range(len(evaluation.results))
        for name, kind, found in _rows(evaluation, n)
    ]
    span, height = _span(evaluation), ROW * (len(rows) + 3)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        f'font-size="13" role="img"><rect width="100%" height="100%" fill="#fff"/>',
        _text(12, 20, f"{evaluation.set.name}: gain over {evaluation.versions[0].contestant}, 95 % intervals"),
        _line(_x(0.0, span), _x(0.0, span), ROW, height - ROW, "#999"),
    ]
    for place, (name, found) in enumerate(rows):
        y = ROW * (place + 2)
        parts += [
            _text(12, y + 4, name),
            _line(_x(found.low, span), _x(found.high, span), y, y, "#246"),
            f'<circle cx="{_x(found.mean, span):.1f}" cy="{y}" r="4" fill="#246"/>',
            _text(WIDTH - RIGHT + 12, y + 4, f"{found.mean:+.3f}"),
        ]
    return "\n".join([*parts, "</svg>", ""])


def _x(value: float, span: float) -> float:
    return LEFT + (max(-span, min(span, value)) / span + 1.0) / 2.0 * (WIDTH - LEFT - RIGHT)


def _line(x1: float, x2: float, y1: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="2"/>'


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x}" y="{y}">{escape(text)}</text>'
