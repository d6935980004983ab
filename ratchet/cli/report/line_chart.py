"""One curve over steps or runs: training losses and rewards, and the anchors' scores."""

from __future__ import annotations

from collections.abc import Sequence

from ratchet.cli.report.markup import Markup, tag
from ratchet.cli.report.plot import Frame, Point, ticks

FLAT = 0.05


def line_chart(
    points: Sequence[Point], label: str, *, class_: str = "effect", level: float | None = None, decimals: int = 3
) -> Markup:
    """Needs a point. `level`: a value the curve should keep to, dashed."""
    values = [y for _, y in points] + ([] if level is None else [level])
    low, high = min(values), max(values)
    room = 0.1 * (high - low) or abs(high) * FLAT or FLAT
    first, last = points[0][0], points[-1][0]
    frame = Frame.over((min(first, last - 1), last), (low - room, high + room), width=330, height=150, left=52)
    x, y = points[-1]
    return frame.drawn(
        f"{label}: from {points[0][1]:.{decimals}f} to {y:.{decimals}f}",
        frame.y_axis(ticks(frame.y.low, frame.y.high, 3)),
        frame.x_axis(ticks(frame.x.low, last, 4)),
        None if level is None else frame.across(level, "threshold"),
        frame.line(points, f"line {class_}"),
        tag("circle", cx=frame.x(x), cy=frame.y(y), r=3.5, class_=f"dot {class_}"),
    )
