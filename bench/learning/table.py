"""Lessons as a table, and whether the bars are met."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from bench.learning.learners import CONTROL, OFFLINE, ONLINE
from bench.learning.lesson import Lesson
from bench.learning.world import Judgement


def print_table(world: Judgement, lessons: Sequence[Lesson], level: float) -> None:
    rounds = range(len(lessons[0].scores))
    heads = "".join(f"{f'round {number}':>15}" for number in rounds)
    print(f"\n{world.name}: {world.samples} samples a round; held-out share right, mean ± standard error over seeds")
    print(f"{'':20}{heads}{'mean of rounds':>16}{f'samples to {level:g}':>18}{'CPU-s to it':>15}{'steps/round':>13}")
    for name in dict.fromkeys(one.learner for one in lessons):
        own = [one for one in lessons if one.learner == name]
        cells = "".join(f"{_mean_and_error([one.scores[n] for one in own]):>15}" for n in rounds)
        mean = _mean_and_error([one.mean for one in own])
        samples = _to_level(own, lambda one: _samples_to(one, level, world.samples), ",.0f")
        seconds = _to_level(own, lambda one: _seconds_to(one, level), ".1f")
        steps = statistics.fmean(step for one in own for step in one.steps)
        print(f"{name:20}{cells}{mean:>16}{samples:>18}{seconds:>15}{steps:>13.0f}")


def bars_met(world: str, lessons: Sequence[Lesson]) -> bool:
    """By the mean over the rounds; the last round and the paired difference to the control are printed beside it."""
    of = {name: [one for one in lessons if one.learner == name] for name in (OFFLINE, CONTROL, ONLINE)}
    mean = {name: statistics.fmean(one.mean for one in own) for name, own in of.items()}
    above, near = mean[OFFLINE] > mean[CONTROL], mean[OFFLINE] >= 0.95 * mean[ONLINE]
    pairs = list(zip(of[OFFLINE], of[CONTROL], strict=True))
    overall = _mean_and_error([ours.mean - theirs.mean for ours, theirs in pairs])
    last = _mean_and_error([ours.scores[-1] - theirs.scores[-1] for ours, theirs in pairs])
    print(
        f"\n{world}: offline GRPO minus the control, paired by seed: {overall} over the rounds, {last} after the last\n"
        f"  above the control: {'yes' if above else 'NO'}; within 5 % of online GRPO: {'yes' if near else 'NO'} "
        f"({mean[OFFLINE] / mean[ONLINE]:.3f} of it)"
    )
    return above and near


def _mean_and_error(values: Sequence[float]) -> str:
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):.3f} ± {error:.3f}"


def _rounds_to(one: Lesson, level: float) -> float | None:
    """Rounds until the score is reached, in between two by a straight line; None if it never is."""
    for number, (before, after) in enumerate(zip(one.scores, one.scores[1:], strict=False)):
        if after >= level:
            return number + max(0.0, (level - before) / (after - before)) if after > before else number
    return None


def _samples_to(one: Lesson, level: float, samples: int) -> float | None:
    rounds = _rounds_to(one, level)
    return None if rounds is None else rounds * samples


def _seconds_to(one: Lesson, level: float) -> float | None:
    if (rounds := _rounds_to(one, level)) is None:
        return None
    whole = int(rounds)
    part = one.seconds[whole] * (rounds - whole) if whole < len(one.seconds) else 0.0
    return sum(one.seconds[:whole]) + part


def _to_level(lessons: Sequence[Lesson], cost: Callable[[Lesson], float | None], form: str) -> str:
    """The median of those that reach it."""
    found = [cost(one) for one in lessons]
    reached = [value for value in found if value is not None]
    if not reached:
        return "never"
    missing = f" ({len(reached)} of {len(lessons)})" if len(reached) < len(lessons) else ""
    return f"{statistics.median(reached):{form}}{missing}"
