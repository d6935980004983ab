"""An experiment in a terminal: the effect with its band, the e-values, the arms, and the verdict or what is missing.

Pure: a view in, something rich can print out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ratchet.experiments.records import RUNNING, ExperimentRecord
from ratchet.experiments.view import ExperimentView
from ratchet.runs.progress import thin_out
from schemas.records.evidence import ArmSummary, Evidence, ExperimentDecision, ExperimentPlan, HistoryPoint
from services.cli.terminal import Listing, number, table

LABEL = 8
"""Characters for the scale at the left, the axis excluded."""
MIN_WIDTH = 24
LEAST_SPAN = 0.05
LARGEST_LOG10 = 3.0
SMALLEST_LOG10 = -2.0

PLAIN = str.maketrans(
    {"░": ".", "●": "*", "┈": "-", "┄": "=", "│": "|", "└": "+", "─": "-", "▲": "g", "▼": "h", "−": "-"}
)

Rows = list[list[str]]


def effect_chart(history: Sequence[HistoryPoint], *, width: int = 80, height: int = 13, plain: bool = False) -> str:
    """Score of candidate minus primary: ● the estimate, ░ the band, ┈ no difference."""
    points = columns(history, width - LABEL - 1)
    if not points:
        return "no unit has finished yet"
    span = _span(history)
    rows = _blank(len(points), height)
    for column, point in enumerate(points):
        top, bottom = (_row(end, -span, span, height) for end in (point.band.high, point.band.low))
        for row in range(top, bottom + 1):
            rows[row][column] = "░"
    _across(rows, _row(0.0, -span, span, height), "┈")
    for column, point in enumerate(points):
        rows[_row(point.band.effect, -span, span, height)][column] = "●"
    return _draw_frame(rows, lambda row: f"{span - 2 * span * row / (height - 1):+.3f}", points, plain)


def evidence_chart(
    history: Sequence[HistoryPoint], *, threshold: float, width: int = 80, height: int = 11, plain: bool = False
) -> str:
    """E-values on a logarithmic scale: ▲ for better in score, ▼ for harm, ┄ the threshold of a verdict."""
    points = columns(history, width - LABEL - 1)
    if not points:
        return "no unit has finished yet"
    low, high = SMALLEST_LOG10, LARGEST_LOG10
    rows = _blank(len(points), height)
    line = _row(math.log10(threshold), low, high, height)
    _across(rows, line, "┄")

    def label(row: int) -> str:
        value = 10 ** (high - (high - low) * row / (height - 1))
        return f"{threshold if row == line else value:.3g}"

    for column, point in enumerate(points):
        rows[_row(_log10(point.harm), low, high, height)][column] = "▼"
        rows[_row(_log10(point.gain), low, high, height)][column] = "▲"
    return _draw_frame(rows, label, points, plain)


def columns(history: Sequence[HistoryPoint], width: int) -> list[HistoryPoint]:
    """Return at most `width` points, evenly over the units, the last one among them."""
    return thin_out(history, max(width, MIN_WIDTH - LABEL - 1))


def _span(history: Sequence[HistoryPoint]) -> float:
    """Half the height of the picture: the last band, with room around it; the wide early bands are cut off."""
    last = history[-1].band
    return min(1.0, max(LEAST_SPAN, 1.5 * max(abs(last.low), abs(last.high), abs(last.effect))))


def _log10(value: float) -> float:
    return math.log10(max(value, 1e-300))


def _row(value: float, low: float, high: float, height: int) -> int:
    place = (high - min(max(value, low), high)) / (high - low)
    return round(place * (height - 1))


def _blank(width: int, height: int) -> Rows:
    return [[" "] * width for _ in range(height)]


def _across(rows: Rows, row: int, mark: str) -> None:
    rows[row] = [mark] * len(rows[row])


def _draw_frame(rows: Rows, label: Callable[[int], str], points: Sequence[HistoryPoint], plain: bool) -> str:
    lines = [f"{label(row):>{LABEL}}│{''.join(cells)}" for row, cells in enumerate(rows)]
    lines.append(" " * LABEL + "└" + "─" * len(points))
    first, last = str(points[0].units), f"{points[-1].units} units"
    lines.append(" " * (LABEL + 1) + first + last.rjust(max(len(points) - len(first), len(last) + 1)))
    text = "\n".join(line.rstrip() for line in lines)
    return text.translate(PLAIN) if plain else text


STYLES = {
    RUNNING: "yellow",
    "promoted": "bold green",
    "settled": "green",
    "unharmed": "green",
    "rolled_back": "red",
    "aborted": "dim",
    "inconclusive": "dim",
}
WIDEST = 110
NARROW = 40
TALL, SHORT = 53, 39
"""Rows of a terminal from which on both pictures have all their lines, and below which there is room for one only."""
WORDS, WORDS_OF_ALL = 18, 30
"""Rows that everything beside the pictures takes: in a short terminal, and else."""


def render_list(records: Sequence[ExperimentRecord]) -> Listing:
    """Show what was compared below each, where the terminal has no room beside it."""
    shown = Listing("experiment", "outcome", "kind", "began", "lasted", "compared")
    for record in records:
        shown.add(
            record.experiment_id,
            Text(record.outcome, STYLES.get(record.outcome, "")),
            record.running.kind,
            f"{record.began.at:%m-%d %H:%M}",
            _duration(record.ended.at - record.began.at) if record.ended else "",
            " / ".join(record.running.arms),
        )
    return shown


def render_experiment(view: ExperimentView, *, width: int, rows: int = TALL, plain: bool = False) -> Group:
    """`rows`: of the terminal, where all should be seen at once; `plain`: a terminal without Unicode."""
    parts: list[RenderableType] = [_headline(view.record)]
    if view.plan and view.history:
        parts += _charts(view, view.plan, max(NARROW, min(width, WIDEST)), rows, plain)
    if view.decision:
        parts += [Text(), _arms(view.record, view.decision.evidence)]
    if view.plan and view.decision:
        parts += [Text(), _e_values(view.plan, view.decision.evidence)] if rows >= SHORT else []
        parts += [Text(), _verdict(view.record, view.decision)]
    if view.trouble:
        parts.append(Text(f"✘ no chart: {view.trouble}", style="red"))
    if view.record.ended:
        parts.append(_ending(view.record))
    return Group(*parts)


def _headline(record: ExperimentRecord) -> Text:
    treatment, control = record.running.arms
    return Text.assemble(
        (record.experiment_id, "bold"),
        f" · {record.running.kind} of {treatment} against {control} · agent {record.agent_id} · ",
        (record.outcome, STYLES.get(record.outcome, "")),
        f" · began {_moment(record.began.at)}",
    )


def _charts(view: ExperimentView, plan: ExperimentPlan, width: int, rows: int, plain: bool) -> list[RenderableType]:
    """Draw the effect alone where the terminal is short."""
    treatment, control = view.record.running.arms
    mark, shade, better, harm = ("*", ".", "g", "h") if plain else ("●", "░", "▲", "▼")
    legend = f"{mark} estimate, {shade} band (each end holds at all times with {1 - plan.alpha:.0%})"
    tall, low = chart_heights(rows)
    drawn: list[RenderableType] = [
        Text(f"\nscore, {treatment} minus {control}: {legend}", "dim"),
        Text(effect_chart(view.history, width=width, height=tall, plain=plain), no_wrap=True),
    ]
    if low:
        evidence = evidence_chart(view.history, threshold=plan.threshold, width=width, height=low, plain=plain)
        drawn += [
            Text(f"\ne-values: {better} better in score, {harm} harm, verdict at {plan.threshold:g}", "dim"),
            Text(evidence, no_wrap=True),
        ]
    return drawn


def chart_heights(rows: int) -> tuple[int, int]:
    """Lines for the effect and for the e-values, so that with the words they fill a terminal of so many rows."""
    if rows < SHORT:
        return min(13, max(5, rows - WORDS)), 0
    spare = min(rows, TALL) - WORDS_OF_ALL
    return (spare + 2) // 2, (spare - 1) // 2


def _arms(record: ExperimentRecord, evidence: Evidence) -> Table:
    both = (evidence.candidate, evidence.primary)
    talks = any(arm.calls is not None for arm in both)
    arms = table("arm", "units", "score", "success", "tokens", "latency", *(("calls", "turns") if talks else ()))
    for name, arm in zip(record.running.arms, both, strict=True):
        arms.add_row(name, *_means(arm, talks=talks))
    return arms


def _means(arm: ArmSummary, *, talks: bool) -> tuple[str, ...]:
    latency = "–" if arm.latency_s is None else f"{arm.latency_s:.3f} s"
    means = f"{arm.units:,}", number(arm.score, ".3f"), number(arm.success, ".3f"), number(arm.length, ".1f"), latency
    return (*means, number(arm.calls, ".1f"), number(arm.turns, ".1f")) if talks else means


def _e_values(plan: ExperimentPlan, evidence: Evidence) -> Table:
    shown = table("e-value for", "now", "verdict at")
    rows: list[tuple[str, float | None, float]] = [
        ("harm (all metrics)", evidence.harm, plan.roll_back_at),
        ("broken shares", evidence.sample_ratio, plan.abort_at),
    ]
    if plan.kind == "canary":
        rows = [
            ("better in score", evidence.gain_score, plan.promote_at),
            ("success kept", evidence.gain_success, plan.promote_at),
            ("missing at worst", evidence.gain_bounds, plan.promote_at),
            ("within the limits", evidence.kept, plan.promote_at),
            ("no loss by the auditor", evidence.gain_audit, plan.promote_at),
            ("no loss in what is served", evidence.gain_served, plan.promote_at),
            *rows,
        ]
    for name, value, threshold in rows:
        if value is None:
            continue
        shown.add_row(name, Text(f"{value:.3g}", "bold" if value >= threshold else ""), f"{threshold:g}")
    return shown


def _verdict(record: ExperimentRecord, decision: ExperimentDecision) -> Text:
    if not decision.verdict.final and record.ended is None:
        word = "still missing" if record.running.kind == "canary" else "watched"
        return Text.assemble((decision.verdict.sentence, "yellow"), f"\n{word}: {decision.reason}")
    band = decision.band
    return Text.assemble(
        (decision.verdict.sentence, STYLES.get(record.outcome, "")),
        f"\n{decision.reason}\neffect {band.effect:+.3f}, between {band.low:+.2f} and {band.high:+.2f}",
    )


def _ending(record: ExperimentRecord) -> Text:
    assert record.ended is not None
    ended = record.ended
    line = f"{record.outcome} {_moment(ended.at)} by {ended.who}, decision {ended.sequence}"
    if ended.who.startswith("operator:"):
        line += f": {ended.reason}"
    return Text(line, "dim")


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _duration(span: timedelta) -> str:
    """Write it in the unit a person would use."""
    seconds = span.total_seconds()
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} s"
