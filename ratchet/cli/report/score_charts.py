"""Scores as pictures: each version's mean with its confidence interval, and the course over time with the shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ratchet.cli.report.markup import Markup, joined, tag
from ratchet.cli.report.plot import Frame, Point, Scale, ticks
from ratchet.cli.report.score_stats import Mean, Period

COLOURS = 8
HEIGHT = 290.0
STRIP, GAP = 34.0, 10.0
"""Height of the strip under the course that shows who answered, and of the room above it."""


def colour(version: str, versions: Sequence[str]) -> str:
    """The class of a version's colour: the base model's is grey, the rest go round."""
    index = versions.index(version) if version in versions else 0
    return "c0" if index == 0 else f"c{1 + (index - 1) % COLOURS}"


def versions_chart(
    versions: Sequence[str], live: Mapping[str, Mean], held_out: Mapping[str, Mean], primaries: Sequence[str]
) -> Markup:
    """● the users' tasks with a 95 % interval, ◇ the golden set; a line joins the versions that were primary."""
    shown = [version for version in versions if version in live or version in held_out]
    frame = Frame.over(
        (-0.6, len(shown) - 0.4),
        _range([*live.values(), *held_out.values()]),
        width=max(520, 70 * len(shown)),
        height=HEIGHT,
        bottom=42,
    )
    trunk = [(float(shown.index(name)), live[name].mean) for name in primaries if name in live and name in shown]
    return frame.drawn(
        "mean score by adapter version: "
        + ", ".join(f"{name} {live[name].mean:.3f} of {live[name].count} tasks" for name in shown if name in live),
        frame.y_axis(ticks(frame.y.low, frame.y.high)),
        frame.line(trunk, "line trunk") if len(trunk) > 1 else None,
        *(
            joined(
                _version(frame, index, name, live.get(name), held_out.get(name), colour(name, versions)),
                tag("text", name, x=frame.x(index), y=frame.height - 22, text_anchor="middle", class_="tick strong"),
            )
            for index, name in enumerate(shown)
        ),
    )


def timeline_chart(periods: Sequence[Period], versions: Sequence[str]) -> Markup:
    """Needs a period. The mean score over the tasks in the order they ended; below it, which version answered."""
    ends = _ends(periods)
    line = _course(periods, ends)
    means = [mean for _, mean in line]
    frame = Frame.over((0.0, float(ends[-1])), _padded(means), height=HEIGHT, bottom=GAP + STRIP + 24.0)
    return frame.drawn(
        f"mean score over {ends[-1]} tasks, from {means[0]:.3f} to {means[-1]:.3f}" if means else "no scores yet",
        frame.y_axis(ticks(frame.y.low, frame.y.high)),
        frame.x_axis(ticks(0, ends[-1])),
        frame.line(line, "line effect") if line else None,
        *(_share(frame, period, end, versions) for period, end in zip(periods, ends, strict=True)),
    )


def _version(frame: Frame, x: float, name: str, live: Mean | None, held_out: Mean | None, class_: str) -> Markup:
    parts: list[Markup] = []
    if live is not None:
        half = live.half_width or 0.0
        place = frame.x(x)
        parts += [
            tag(
                "line",
                x1=place,
                x2=place,
                y1=frame.y(live.mean - half),
                y2=frame.y(live.mean + half),
                class_=f"bar {class_}",
            ),
            tag(
                "circle",
                tag("title", f"{name}: {_words(live)}"),
                cx=place,
                cy=frame.y(live.mean),
                r=6,
                class_=f"dot {class_}",
            ),
            tag("text", f"{live.mean:.3f}", x=place + 11, y=frame.y(live.mean) + 4, class_="said"),
            tag("text", f"{live.count:,}", x=place, y=frame.height - 8, text_anchor="middle", class_="tick"),
        ]
    if held_out is not None:
        parts.append(_diamond(frame, x, held_out, f"{name} on the golden set: {_words(held_out)}", class_))
    return joined(*parts)


def _diamond(frame: Frame, x: float, mean: Mean, words: str, class_: str) -> Markup:
    left, top = frame.x(x) - 16, frame.y(mean.mean)
    shape = f"M{left:.1f},{top - 6:.1f}l6,6l-6,6l-6,-6Z"
    return tag("path", tag("title", words), d=shape, class_=f"diamond {class_}")


def _share(frame: Frame, period: Period, end: int, versions: Sequence[str]) -> Markup:
    """A column of the strip: its versions one above the other, by their share of the period's tasks."""
    left, right = frame.x(end - period.tasks), frame.x(end)
    top = frame.y.start + GAP
    scale = Scale(0.0, float(period.tasks), top + STRIP, top)
    parts, below = [], 0
    for version in sorted(period.shares, key=lambda name: versions.index(name) if name in versions else -1):
        count = period.shares[version]
        high, low = scale(below + count), scale(below)
        words = f"{version}: {count} of {period.tasks} tasks, from {period.began[:16]} on"
        width = max(right - left - 0.4, 0.4)
        parts.append(
            tag("rect", tag("title", words), x=left, y=high, width=width, height=low - high,
                class_=f"share {colour(version, versions)}")
        )  # fmt: skip
        below += count
    return joined(*parts)


def _course(periods: Sequence[Period], ends: Sequence[int]) -> list[Point]:
    """At the middle of each period its mean. The last one counts once it is half full: before, it is mostly noise."""
    full = max(period.tasks for period in periods)
    return [
        (end - period.tasks / 2, period.mean)
        for period, end in zip(periods, ends, strict=True)
        if period.mean is not None and 2 * period.tasks >= full
    ]


def _ends(periods: Sequence[Period]) -> list[int]:
    ends, total = [], 0
    for period in periods:
        total += period.tasks
        ends.append(total)
    return ends


def _words(mean: Mean) -> str:
    margin = "" if mean.half_width is None else f" ± {mean.half_width:.3f} (95 %)"
    return f"{mean.mean:.3f}{margin}, {mean.count:,} tasks"


def _range(means: Sequence[Mean]) -> tuple[float, float]:
    ends = [mean.mean + side * (mean.half_width or 0.0) for mean in means for side in (-1, 1)]
    return _padded(ends)


def _padded(values: Sequence[float]) -> tuple[float, float]:
    """From a bit below the least to a bit above the largest, at least 0.1 high, within 0 and 1."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    room = max(0.1 * (high - low), (0.1 - (high - low)) / 2, 0.01)
    return max(0.0, low - room), min(1.0, high + room)
