"""The curve: what users' tasks are truly answered with, round by round, with what happened. An SVG, light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.ratchet.book import HELD, Round
from bench.ratchet.quality import GROUP, Quality, interval
from schemas.messages.work import BASE_VERSION

WIDTH, HEIGHT = 860, 400
LEFT, RIGHT, TOP, BOTTOM = 56, 170, 78, 52
EVENTS = {
    "hack": "the judge likes length",
    "poison": "forged feedback",
    "correct": "wrong corrections in one family",
    "drift": "the judge drifts, for good",
    "reanchored": "re-anchored",
}
LETTER, LINE = 6.2, 15
"""Width of a letter of a small name, about, and height of a line."""
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f }
.small { font-size: 11px; fill: #57606a }
.grid { stroke: #d0d7de } .event { fill: #fff1d6 } .event-name { font-size: 11px; fill: #7d4e00 }
.single { stroke: #0b62c4; fill: none; stroke-width: 2.5 } .single-band { fill: #0b62c4; opacity: .15 }
.served { stroke: #1a7f37; fill: none; stroke-width: 2 } .served-band { fill: #1a7f37; opacity: .12 }
.first { stroke: #57606a; stroke-dasharray: 4 4 } .up { fill: #0b62c4 } .out { stroke: #cf222e; stroke-width: 2 }
.held { fill: none; stroke: #57606a; stroke-width: 1.5 } .held { fill: none; stroke: #57606a; stroke-width: 1.5 }
.blue { fill: #0b62c4 } .green { fill: #1a7f37 } .red { fill: #cf222e } .page { fill: #fff }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9198a1 } .grid { stroke: #30363d } .page { fill: #0d1117 }
.event { fill: #3b2e13 } .event-name { fill: #e3b341 } .single { stroke: #58a6ff } .single-band { fill: #58a6ff }
.served { stroke: #3fb950 } .served-band { fill: #3fb950 } .first { stroke: #9198a1 } .up { fill: #58a6ff }
.out { stroke: #ff7b72 } .held { stroke: #9198a1 }
.blue { fill: #58a6ff } .green { fill: #3fb950 } .red { fill: #ff7b72 } }
"""


def svg(rounds: Sequence[Round], found: Mapping[str, Quality]) -> str:
    """The last point of a curve is the primary after the last round; the first, v1.0.0's."""
    first = found[BASE_VERSION]
    primaries = [BASE_VERSION, *(one.primary for one in rounds)]
    counts = [GROUP, *(one.samples_now for one in rounds)]
    single = [interval(found[version].single) for version in primaries]
    served = [interval(found[version].served_by(count)) for version, count in zip(primaries, counts, strict=True)]
    frame = _Frame(len(rounds))
    whole = interval(first.served_by(GROUP))[0]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="Share of held-out tasks answered right, by round"><style>{STYLE}</style>',
        f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text x="{LEFT}" y="19">Held-out tasks answered right, by a verifier that the fleet never sees</text>',
        *frame.events(rounds),
        *frame.grid(),
        f'<line class="first" x1="{LEFT}" x2="{frame.x(len(rounds)):.1f}" y1="{frame.y(whole):.1f}" '
        f'y2="{frame.y(whole):.1f}"/>',
        *frame.curve("served", served),
        *frame.curve("single", single),
        *frame.marks(rounds, found),
        *frame.names(
            [
                (served[-1][0], "green", f"served, n = {counts[-1]}: {served[-1][0]:.2f}"),
                (whole, "small", f"{BASE_VERSION}, best of {GROUP}: {whole:.2f}"),
                (single[-1][0], "blue", f"one answer: {single[-1][0]:.2f}"),
            ]
        ),
        *_legend(held=any(one.outcome == HELD for one in rounds)),
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


class _Frame:
    def __init__(self, rounds: int) -> None:
        self._rounds = max(rounds, 1)

    def x(self, number: float) -> float:
        return LEFT + number / self._rounds * (WIDTH - LEFT - RIGHT)

    def y(self, share: float) -> float:
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def grid(self) -> list[str]:
        right = self.x(self._rounds)
        lines = []
        for tenths in range(0, 11, 2):
            y = self.y(tenths / 10)
            lines.append(f'<line class="grid" x1="{LEFT}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
            lines.append(
                f'<text class="small" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tenths / 10:.1f}</text>'
            )
        step = 1 if self._rounds <= 10 else 5
        for number in range(0, self._rounds + 1, step):
            x, y = self.x(number), HEIGHT - BOTTOM + 16
            lines.append(f'<text class="small" x="{x:.1f}" y="{y}" text-anchor="middle">{number}</text>')
        lines.append(f'<text class="small" x="{right + 12:.1f}" y="{HEIGHT - BOTTOM + 16}">rounds</text>')
        return lines

    def events(self, rounds: Sequence[Round]) -> list[str]:
        """A band over the rounds in which each happened, as often as it did; a name takes the lowest free line."""
        bands = sorted(
            (first - 1, last, words)
            for name, words in EVENTS.items()
            for first, last in _stretches([one.number for one in rounds if name in one.events])
        )
        parts, ends = [], list[float]()
        for first, last, words in bands:
            left, right = self.x(first), self.x(last)
            line = next((number for number, end in enumerate(ends) if end < left), len(ends))
            ends[line : line + 1] = [left + LETTER * len(words) + 8]
            parts.append(
                f'<rect class="event" x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" '
                f'height="{HEIGHT - TOP - BOTTOM}"/>'
                f'<text class="event-name" x="{left:.1f}" y="{TOP - 6 - LINE * line}">{words}</text>'
            )
        return parts

    def names(self, curves: Sequence[tuple[float, str, str]]) -> list[str]:
        """Label the ends of curves, each (share, class, words), so that no label covers another."""
        parts, y = [], -float(LINE)
        for share, kind, words in sorted(curves, reverse=True):
            y = max(y + LINE + 1, self.y(share) + 4)
            parts.append(f'<text class="{kind}" x="{self.x(self._rounds) + 12:.1f}" y="{y:.1f}">{words}</text>')
        return parts

    def curve(self, name: str, values: Sequence[tuple[float, float]]) -> list[str]:
        points = [f"{self.x(number):.1f},{self.y(mean):.1f}" for number, (mean, _) in enumerate(values)]
        upper = [f"{self.x(number):.1f},{self.y(mean + half):.1f}" for number, (mean, half) in enumerate(values)]
        lower = [f"{self.x(number):.1f},{self.y(mean - half):.1f}" for number, (mean, half) in enumerate(values)]
        return [
            f'<polygon class="{name}-band" points="{" ".join([*upper, *reversed(lower)])}"/>',
            f'<polyline class="{name}" points="{" ".join(points)}"/>',
        ]

    def marks(self, rounds: Sequence[Round], found: Mapping[str, Quality]) -> list[str]:
        """A dot for each promotion, a cross where one would have been that was kept out, a ring where none was tried
        because the judge was not trusted."""
        parts = []
        for one in rounds:
            x = self.x(one.number)
            if one.primary not in (one.before, one.version):
                y = self.y(interval(found[one.primary].single)[0])
                parts.append(f'<text class="red" x="{x:.1f}" y="{y + 18:.1f}">back to {one.primary}</text>')
            tried = found.get(one.version or "")
            if one.outcome == HELD:
                y = self.y(interval(found[one.primary].single)[0])
                parts.append(f'<circle class="held" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>')
            elif tried is not None:
                parts.append(_mark(x, self.y(interval(tried.single)[0]), promoted=one.promoted))
        return parts


def _mark(x: float, y: float, *, promoted: bool) -> str:
    if promoted:
        return f'<circle class="up" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'
    return f'<path class="out" d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"/>'


def _stretches(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each run of numbers without a gap."""
    firsts = [number for number in numbers if number - 1 not in numbers]
    lasts = [number for number in numbers if number + 1 not in numbers]
    return list(zip(firsts, lasts, strict=True))


def _legend(*, held: bool) -> list[str]:
    """Explain the colours and marks; the ring only where there is one."""
    y = HEIGHT - 12
    colours = "one answer (blue), the answer served (green); bands: 95 %"
    marks = [
        (LEFT, _mark(LEFT + 4, y - 4, promoted=True), "promoted"),
        (LEFT + 82, _mark(LEFT + 86, y - 4, promoted=False), "tried and kept out, at what one of its answers is worth"),
    ]
    if held:
        ring = f'<circle class="held" cx="{LEFT + 432}" cy="{y - 4}" r="4.5"/>'
        marks.append((LEFT + 428, ring, "none tried: the judge was not trusted"))
    parts = [f'<text class="small" x="{LEFT}" y="36">{colours}</text>']
    for x, mark, words in marks:
        parts += [mark, f'<text class="small" x="{x + 14}" y="{y}">{words}</text>']
    return parts
