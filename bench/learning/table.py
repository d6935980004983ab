"""Lessons as tables, and whether the claim holds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.learning.cells import Lesson

CLAIMED = "grpo"
"""The learner whose gain over the best of the simpler ones is the claim."""
CONTROLS = ("weighted-sft", "best-of-group-sft", "kto")


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
    """Differences of the means over the rounds, paired by base model and seed."""
    ours, theirs = of(lessons, learner), of(lessons, other)
    return [ours[key].mean - theirs[key].mean for key in sorted(ours.keys() & theirs.keys())]


def learners_of(lessons: Sequence[Lesson]) -> list[str]:
    """Learners by their mean, the best first."""
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
        gain = _delta(differences(lessons, CLAIMED, name)) if name != CLAIMED else ""
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
    print(f"{judgement}: {CLAIMED} minus {best}, the best control: {_delta(apart)}, {len(apart)} pairs; it {says}")
    return holds


def _delta(values: Sequence[float]) -> str:
    if not values:
        return ""
    mean, half = interval(values)
    return f"{mean:+.3f} [{mean - half:+.3f}, {mean + half:+.3f}]"
