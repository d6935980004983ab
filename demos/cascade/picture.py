"""The picture of a cascade: who answers, whether users get what is right, and what it costs. An SVG. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 46, 118, 34, 40
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f } .small { font-size: 11px; fill: #57606a }
.page { fill: #fff } .grid { stroke: #d0d7de } .share { fill: #0b62c4; opacity: .25 } .share-name { fill: #0b62c4 }
.right { stroke: #1a7f37; fill: none; stroke-width: 2.5 } .right-name { fill: #1a7f37 }
.cost { stroke: #9a6700; fill: none; stroke-width: 2; stroke-dasharray: 5 3 } .cost-name { fill: #9a6700 }
.floor { stroke: #cf222e; stroke-dasharray: 2 3 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .small { fill: #9198a1 } .page { fill: #0d1117 }
.grid { stroke: #30363d } .share { fill: #58a6ff } .share-name { fill: #58a6ff } .right { stroke: #3fb950 }
.right-name { fill: #3fb950 } .cost { stroke: #d29922 } .cost-name { fill: #d29922 } .floor { stroke: #ff7b72 } }
"""


@dataclass(frozen=True, slots=True)
class Window:
    """Some tasks in a row, in the order of routing: the small model's share, the part that is right, the mean cost."""

    tasks: int
    share: float
    right: float
    cost: float


def picture(windows: Sequence[Window], margin: float) -> str:
    """`windows`: users' tasks in parts, in order; `margin`: the loss against the first part that is not accepted."""
    if not windows:
        return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"/>\n'
    total = sum(one.tasks for one in windows)
    ends, passed = [], 0
    for one in windows:
        passed += one.tasks
        ends.append(_x(passed / total))
    begins = [_x(0.0), *ends[:-1]]
    middles = [(begin + end) / 2 for begin, end in zip(begins, ends, strict=True)]
    first, last = windows[0], windows[-1]
    top = max(one.cost for one in windows)
    bars = "".join(
        f'<rect class="share" x="{begin:.1f}" width="{end - begin:.1f}" y="{_y(one.share):.1f}" '
        f'height="{_y(0.0) - _y(one.share):.1f}"/>'
        for one, begin, end in zip(windows, begins, ends, strict=True)
    )
    floor = _y(first.right - margin)
    names = _apart(
        [
            (_y(last.right), "right-name", f"right: {last.right:.1%}"),
            (_y(last.share), "share-name", f"small: {last.share:.0%}"),
            (_y(last.cost / top), "cost-name", f"cost: {last.cost / first.cost:.0%}"),
        ]
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="Share of the small model, right answers and cost, over users\' tasks"><style>{STYLE}</style>',
            f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>',
            f'<text x="{LEFT}" y="19">What users get while a small model takes over from a big one</text>',
            *(
                f'<line class="grid" x1="{LEFT}" x2="{_x(1.0):.1f}" y1="{_y(at):.1f}" y2="{_y(at):.1f}"/>'
                f'<text class="small" x="8" y="{_y(at) + 4:.1f}">{at:.0%}</text>'
                for at in (0.0, 0.25, 0.5, 0.75, 1.0)
            ),
            bars,
            f'<line class="floor" x1="{LEFT}" x2="{_x(1.0):.1f}" y1="{floor:.1f}" y2="{floor:.1f}"/>',
            _line("right", [(x, _y(one.right)) for x, one in zip(middles, windows, strict=True)]),
            _line("cost", [(x, _y(one.cost / top)) for x, one in zip(middles, windows, strict=True)]),
            *(f'<text class="{name}" x="{_x(1.0) + 8:.1f}" y="{y + 4:.1f}">{text}</text>' for y, name, text in names),
            f'<text class="small" x="{LEFT}" y="{HEIGHT - 12}">{total:,} tasks of users. Blue: answered by the small '
            "model. Red: the first part's quality less the margin.</text>",
            "</svg>",
            "",
        ]
    )


def _x(part: float) -> float:
    return LEFT + part * (WIDTH - LEFT - RIGHT)


def _y(value: float) -> float:
    return TOP + (1.0 - value) * (HEIGHT - TOP - BOTTOM)


def _line(name: str, points: Sequence[tuple[float, float]]) -> str:
    return f'<polyline class="{name}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def _apart(names: list[tuple[float, str, str]]) -> list[tuple[float, str, str]]:
    """Return the names from the top down, no two nearer than a line."""
    found: list[tuple[float, str, str]] = []
    for y, name, text in sorted(names):
        found.append((max(y, found[-1][0] + 15) if found else y, name, text))
    return found
