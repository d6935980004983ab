"""Lessons as tables and as a picture, and whether the claim holds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from bench.learning.cells import Lesson

CLAIMED = "grpo"
"""Whose gain over the best of the simpler ones is claimed, or not."""
CONTROLS = ("weighted-sft", "best-of-group-sft", "kto")
ONLINE = "online-grpo"


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and half of its 95 % interval (Student's)."""
    if len(values) < 2:
        return values[0], float("inf")
    return statistics.fmean(values), student(len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5


def student(freedom: int) -> float:
    """The 97.5 % quantile: its expansion in 1 / freedom (Abramowitz and Stegun 26.7.5), right to 0.01 from 4 on."""
    z = statistics.NormalDist().inv_cdf(0.975)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))


def of(lessons: Sequence[Lesson], learner: str) -> dict[tuple[str, int], Lesson]:
    return {(one.cell.base, one.cell.seed): one for one in lessons if one.cell.learner == learner}


def differences(lessons: Sequence[Lesson], learner: str, other: str) -> list[float]:
    """Of the means over the rounds, paired by base model and seed."""
    ours, theirs = of(lessons, learner), of(lessons, other)
    return [ours[key].mean - theirs[key].mean for key in sorted(ours.keys() & theirs.keys())]


def learners_of(lessons: Sequence[Lesson]) -> list[str]:
    """The best first."""
    names = {one.cell.learner for one in lessons}
    return sorted(names, key=lambda name: -statistics.fmean(one.mean for one in of(lessons, name).values()))


def print_table(judgement: str, lessons: Sequence[Lesson]) -> None:
    rounds = range(len(lessons[0].scores))
    heads = "".join(f"{f'round {number}':>10}" for number in rounds)
    print(f"\n{judgement} judge; held-out probability of the right answer, means; intervals are 95 %")
    print(f"{'':20}{heads}{'mean of rounds':>20}{f'{CLAIMED} minus it':>22}{'CPU-s/round':>13}{'n':>5}")
    for name in learners_of(lessons):
        own = list(of(lessons, name).values())
        cells = "".join(f"{statistics.fmean(one.scores[n] for one in own):>10.3f}" for n in rounds)
        mean, half = interval([one.mean for one in own])
        seconds = statistics.fmean(second for one in own for second in one.seconds)
        gain = _signed(differences(lessons, CLAIMED, name)) if name != CLAIMED else ""
        print(f"{name:20}{cells}{f'{mean:.3f} ± {half:.3f}':>20}{gain:>22}{seconds:>13.1f}{len(own):>5}")


def verdict(judgement: str, lessons: Sequence[Lesson]) -> bool:
    """True where the claimed learner's interval over the best control lies above 0; prints it."""
    best = next((name for name in learners_of(lessons) if name in CONTROLS), None)
    apart = differences(lessons, CLAIMED, best) if best else []
    if not apart:
        return False
    mean, half = interval(apart)
    holds = mean - half > 0
    says = "holds" if holds else "does not hold: the simpler learner is as good"
    print(f"{judgement}: {CLAIMED} minus {best}, the best control: {_signed(apart)}, {len(apart)} pairs; it {says}")
    return holds


def _signed(values: Sequence[float]) -> str:
    if not values:
        return ""
    mean, half = interval(values)
    return f"{mean:+.3f} [{mean - half:+.3f}, {mean + half:+.3f}]"


def draw(path: Path, by_judgement: dict[str, Sequence[Lesson]]) -> None:
    """An SVG: for each judge a row for each learner, the mean over the rounds with its interval."""
    rows = [(judgement, name) for judgement, lessons in by_judgement.items() for name in learners_of(lessons)]
    width, left, line = 720, 210, 26
    figures = {row: interval([one.mean for one in of(by_judgement[row[0]], row[1]).values()]) for row in rows}
    low = min(mean - min(half, 0.2) for mean, half in figures.values())
    high = max(mean + min(half, 0.2) for mean, half in figures.values())

    def x(value: float) -> float:
        return left + (min(max(value, low), high) - low) / max(high - low, 1e-9) * (width - left - 70)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {line * (len(rows) + 2)}" '
        f'font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="10" y="18">Held-out probability of the right answer, mean over rounds, 95 % intervals</text>'
    ]
    for number, row in enumerate(rows):
        (judgement, name), (mean, half) = row, figures[row]
        y = line * (number + 2)
        colour = "#1f5fbf" if name == CLAIMED else "#555"
        parts.append(
            f'<text x="10" y="{y}">{judgement}: {name}</text>'
            f'<line x1="{x(mean - half):.1f}" x2="{x(mean + half):.1f}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}"/>'
            f'<circle cx="{x(mean):.1f}" cy="{y - 4}" r="4" fill="{colour}"/>'
            f'<text x="{width - 50}" y="{y}">{mean:.3f}</text>'
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*parts, "</svg>"]) + "\n")
