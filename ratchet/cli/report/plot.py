"""The parts every chart is made of: scales, ticks, axes, lines and bands, in SVG. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from ratchet.cli.report.markup import Markup, joined, tag

Point = tuple[float, float]
TICK_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to pixels; what lies outside is drawn at the edge."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = (self.high - self.low) or 1.0
        share = (min(max(value, self.low), self.high) - self.low) / span
        return self.start + share * (self.end - self.start)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round values from `low` to `high`, both taken in where they are round."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in TICK_STEPS if size * factor >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(index * step, 12) + 0.0 for index in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class Frame:
    """A chart's area: `width` × `height` pixels, room for labels around the plot."""

    width: float
    height: float
    x: Scale
    y: Scale

    @classmethod
    def over(
        cls,
        x: tuple[float, float],
        y: tuple[float, float],
        *,
        width: float = 520.0,
        height: float = 240.0,
        left: float = 46.0,
        right: float = 16.0,
        top: float = 12.0,
        bottom: float = 26.0,
    ) -> Frame:
        return cls(width, height, Scale(*x, left, width - right), Scale(*y, height - bottom, top))

    def at(self, x: float, y: float) -> Point:
        return self.x(x), self.y(y)

    def drawn(self, label: str, *content: str | None) -> Markup:
        """The chart with this content; `label` is what it shows, for those who can't see it."""
        size = f"0 0 {self.width:g} {self.height:g}"
        return tag("svg", *content, view_box=size, role="img", aria_label=label, class_="chart", width=self.width)

    def y_axis(self, values: Iterable[float], label: Callable[[float], str] = "{:g}".format) -> Markup:
        """Grid lines across the plot with their values at the left."""
        return joined(*(joined(self.across(value), self._left(value, label(value))) for value in values))

    def x_axis(self, values: Iterable[float], label: Callable[[float], str] = "{:g}".format) -> Markup:
        return joined(*(self.below(value, label(value)) for value in values))

    def across(self, y: float, class_: str = "grid") -> Markup:
        return tag("line", x1=self.x.start, x2=self.x.end, y1=self.y(y), y2=self.y(y), class_=class_)

    def upright(self, x: float, class_: str = "grid") -> Markup:
        return tag("line", x1=self.x(x), x2=self.x(x), y1=self.y.start, y2=self.y.end, class_=class_)

    def below(self, x: float, label: str) -> Markup:
        place = self.x(x)
        anchor = "end" if place > self.width - 60 else "middle"
        return tag("text", label, x=place, y=self.height - 8, text_anchor=anchor, class_="tick")

    def line(self, points: Iterable[Point], class_: str) -> Markup:
        """Left out where it runs above or below the plot."""
        runs = [[self.at(*point) for point in run] for inside, run in groupby(points, self._holds) if inside]
        return tag("path", d="".join(path(run) for run in runs), class_=class_)

    def band(self, points: Sequence[tuple[float, float, float]], class_: str) -> Markup:
        """Between (x, low, high) from point to point."""
        upper = [self.at(x, high) for x, _, high in points]
        lower = [self.at(x, low) for x, low, _ in reversed(points)]
        return tag("path", d=f"{path(upper + lower)}Z", class_=class_)

    def said(
        self, x: float, y: float, words: str, class_: str = "said", *, dy: float = -6.0, anchor: str = "end"
    ) -> Markup:
        """Words at a point; under it where there is no room above, and the other way round."""
        place = self.y(y) + dy
        if place < self.y.end + 10:
            place = self.y(y) + 16
        elif place > self.y.start - 3:
            place = self.y(y) - 7
        return tag("text", words, x=self.x(x), y=place, text_anchor=anchor, class_=class_)

    def _holds(self, point: Point) -> bool:
        return self.y.low <= point[1] <= self.y.high

    def _left(self, value: float, label: str) -> Markup:
        return tag("text", label, x=self.x.start - 8, y=self.y(value) + 3.5, text_anchor="end", class_="tick")


def path(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points)
