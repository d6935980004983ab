"""An experiment's two pictures: the effect with its anytime-valid band, and the e-values on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ratchet.cli.report.markup import Markup, joined, tag
from ratchet.cli.report.plot import Frame, Point, ticks
from schemas.records.evidence import ExperimentPlan, HistoryPoint

LEAST_SPAN = 0.05
SAME_SHARE = 1e-6
LOWEST_LOG, LEAST_LOG, MOST_LOG = -2, 3, 9
"""E-values are drawn from this power of ten to one between the other two, as far as is needed."""
ROOM = 0.4
"""Of a power of ten, above the highest point, for words."""
SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def effect_chart(history: Sequence[HistoryPoint], treatment: str, control: str) -> Markup:
    """Needs a point. The wide early bands are cut off, so that the end can be read."""
    span = _span(history)
    frame = Frame.over(_units(history), (-span, span))
    last = history[-1]
    return frame.drawn(
        f"score of {treatment} minus {control}: {last.band.effect:+.3f}, "
        f"between {last.band.low:+.3f} and {last.band.high:+.3f} after {last.units} units",
        frame.y_axis(ticks(-span, span, 6), lambda value: f"{value:+g}" if value else "0"),
        frame.x_axis(ticks(0, last.units)),
        frame.band([(point.units, point.band.low, point.band.high) for point in history], "band"),
        _ramp(frame, history),
        frame.across(0.0, "zero"),
        frame.line([(point.units, point.band.effect) for point in history], "line effect"),
        _dot(frame, last.units, last.band.effect, "effect"),
        frame.said(last.units, last.band.effect, f"{last.band.effect:+.3f}", "said effect", dy=-9.0),
    )


def evidence_chart(history: Sequence[HistoryPoint], plan: ExperimentPlan) -> Markup:
    """Needs a point. In a probation only harm decides, so only harm is drawn."""
    threshold = plan.threshold
    last = history[-1]
    gain = [(float(point.units), _log10(point.gain)) for point in history] if plan.kind == "canary" else []
    harm = [(float(point.units), _log10(point.harm)) for point in history]
    top = min(MOST_LOG, max(LEAST_LOG, *(math.ceil(place + ROOM) for _, place in gain + harm)))
    frame = Frame.over(_units(history), (float(LOWEST_LOG), float(top)))
    harm_below = bool(gain) and gain[-1][1] >= harm[-1][1]
    return frame.drawn(
        f"e-values after {last.units} units: harm {last.harm:.3g}"
        + (f", better in score {last.gain:.3g}" if gain else "")
        + f"; a verdict needs {threshold:g}",
        frame.y_axis(
            [float(power) for power in range(LOWEST_LOG, top + 1, 1 if top < 5 else 2)],
            lambda power: e_words(10**power),
        ),
        frame.x_axis(ticks(0, last.units)),
        frame.across(math.log10(threshold), "threshold"),
        frame.said(0, math.log10(threshold), f"verdict at {threshold:g}", "said muted", anchor="start"),
        _curve(frame, harm, "harm", f"harm {e_words(last.harm)}", below=harm_below),
        _curve(frame, gain, "gain", f"better {e_words(last.gain)}", below=not harm_below) if gain else None,
    )


def e_words(value: float) -> str:
    """As a person writes it: 0.35, 1,234, 5.7×10⁸."""
    if value < 10_000:
        return f"{value:.2g}" if value < 1 else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
    power = math.floor(math.log10(value))
    digits = f"{value / 10.0**power:.1f}".removesuffix(".0")
    shown = str(power).translate(SUPERSCRIPT)
    return f"10{shown}" if digits == "1" else f"{digits}×10{shown}"


def _curve(frame: Frame, points: Sequence[Point], class_: str, words: str, *, below: bool) -> Markup:
    (x, y) = points[-1]
    return joined(
        frame.line(points, f"line {class_}"),
        _dot(frame, x, y, class_),
        frame.said(x, y, words, f"said {class_}", dy=16.0 if below else -7.0),
    )


def _ramp(frame: Frame, history: Sequence[HistoryPoint]) -> Markup:
    """Where the candidate's share rose."""
    marks, share = [], history[0].share
    for point in history:
        if point.share > share + SAME_SHARE:
            share, place = point.share, frame.x(point.units)
            label = tag("text", f"{share:.0%}", x=place + 3, y=frame.y.end + 9, class_="tick")
            marks.append(joined(frame.upright(point.units, "ramp"), label))
    return joined(*marks)


def _dot(frame: Frame, x: float, y: float, class_: str) -> Markup:
    return tag("circle", cx=frame.x(x), cy=frame.y(y), r=3.5, class_=f"dot {class_}")


def _units(history: Sequence[HistoryPoint]) -> tuple[float, float]:
    return 0.0, float(max(history[-1].units, 1))


def _span(history: Sequence[HistoryPoint]) -> float:
    last = history[-1].band
    return min(1.0, max(LEAST_SPAN, 1.5 * max(abs(last.low), abs(last.high), abs(last.effect))))


def _log10(value: float) -> float:
    """Within what is drawn."""
    return min(max(math.log10(max(value, 1e-300)), float(LOWEST_LOG)), float(MOST_LOG))
