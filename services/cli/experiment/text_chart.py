"""Pictures of an experiment as text: the effect with its band, and the e-values, over finished units.

Pure: history in, lines out, no colour, no terminal. Where a terminal has no Unicode, `plain=True` draws in ASCII.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ratchet.runs.progress import thin_out
from schemas.records.evidence import HistoryPoint

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
    """At most `width` points, evenly over the units, the last one always among them."""
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
