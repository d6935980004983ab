"""python -m bench.cascade [--fleets 2000]: how soon, and how often wrongly, a small model takes over from a big one.

Simulates ratchet/experiments/cascade.py, many fleets at once, and holds one of 500 to it. The small model's group of 8
is scored by a noisy judge, the best score routes, and audited answers are judged afresh. A raise is wrong where the
small model's true loss at the new cut, over all traffic, is the margin or more. Only units are simulated: a task that
is not drawn passes time and nothing else. Exits 1 if the rule raises more than 5 % of the fleets wrongly.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ratchet.experiments.cascade import (
    FEWEST,
    NOTHING,
    RECENT,
    SHARES,
    TURN,
    Cascade,
    CascadePlan,
    Cut,
    Pair,
    cut_for,
)
from ratchet.experiments.e_process import FRACTIONS, WEIGHTS

PLAN = CascadePlan()
GROUP = 8
TARGET = SHARES.index(0.8)
POPULATION = 100_000
AT_ONCE = 500
ALPHA = 0.05


@dataclass(frozen=True)
class World:
    """`loss`: of the small model's answer against the big one's, in the mean over all tasks."""

    name: str
    loss: float
    graded: bool
    units: int
    noise: float
    """The judge's: a standard deviation where graded, else its rate of errors."""


@dataclass(frozen=True)
class Tasks:
    """The judge's scores. `routed`: of the best of the small model's group; `small`, `big`: judged afresh."""

    routed: np.ndarray
    small: np.ndarray
    big: np.ndarray
    true_difference: np.ndarray
    draws: np.ndarray


def tasks_of(world: World, count: int, rng: np.random.Generator) -> Tasks:
    """A graded answer is worth 0 to 1; any other is right or wrong, and the judge's noise is its rate of errors.

    How hard a task is decides both what routes and what the answers are worth, so the difference between the two models
    is the same at each cut.
    """
    draws = rng.random(count)
    if world.graded:
        big = rng.uniform(0.45, 0.75, count)
        small = big - world.loss + rng.uniform(-0.2, 0.2, count)
        routed = (big - world.loss + rng.normal(0.0, world.noise, (GROUP, count))).max(axis=0)
        fresh = [np.clip(one + rng.normal(0.0, world.noise, count), 0.0, 1.0) for one in (small, big)]
        return Tasks(np.clip(routed, 0.0, 1.0), fresh[0], fresh[1], small - big, draws)
    easy = 0.5 + 0.5 * rng.beta(4.0, 1.0, count)
    small = (rng.random(count) < easy - world.loss).astype(float)
    big = (rng.random(count) < easy).astype(float)
    small_seen, big_seen = (np.where(rng.random(count) < world.noise, 1.0 - one, one) for one in (small, big))
    return Tasks(rng.binomial(GROUP, easy) / GROUP, small_seen, big_seen, small - big, draws)


@dataclass(frozen=True)
class Fleet:
    """`reached`: tasks until the small model answers 80 %; `audited`: of the tasks until then, or of all."""

    raised_wrongly: bool
    reached: float | None
    audited: float


Losses = Callable[[Cut], float]


def true_losses(world: World, rng: np.random.Generator) -> Losses:
    """The loss over all traffic with a cut, from 100,000 tasks of the world."""
    tasks = tasks_of(world, POPULATION, rng)
    order = np.argsort(-tasks.routed, kind="stable")
    scores, sums = -tasks.routed[order], np.concatenate([[0.0], np.cumsum(tasks.true_difference[order])])

    def loss(cut: Cut) -> float:
        above, at = np.searchsorted(scores, -cut.score, "left"), np.searchsorted(scores, -cut.score, "right")
        return -float(sums[above] + cut.share_at * (sums[at] - sums[above])) / POPULATION

    return loss


class Twins:
    """Many fleets at once, each as `Cascade` would have it; `main` compares some with `Cascade` itself.

    They go on until all have reached 80 % or their units are spent.
    """

    def __init__(self, tasks: Sequence[Tasks], losses: Losses) -> None:
        fleets = len(tasks)
        self._routed, self._draws, self._big, self._small = (
            np.array([getattr(one, name) for one in tasks]) for name in ("routed", "draws", "big", "small")
        )
        self._losses = losses
        self._shares = np.array(SHARES)
        self._step, self._attempt, self._units = (np.full(fleets, start) for start in (0, 1, 0))
        self._cut = np.tile([NOTHING.score, NOTHING.share_at], (fleets, 1))
        self._next = np.full((fleets, 2), np.nan)
        self._logs = np.zeros((2, fleets, len(FRACTIONS)))
        self._passed, self._audited = np.zeros(fleets), np.zeros(fleets)
        self._is_wrong, self._reached = np.zeros(fleets, bool), np.full(fleets, np.nan)

    def run(self) -> list[Fleet]:
        for number in range(self._routed.shape[1]):
            going = np.flatnonzero(np.isnan(self._reached))
            if not len(going):
                break
            self._pass_task(number, going)
        return [
            Fleet(bool(wrong), None if math.isnan(at) else float(at), float(audited / passed))
            for wrong, at, audited, passed in zip(
                self._is_wrong, self._reached, self._audited, self._passed, strict=True
            )
        ]

    def _pass_task(self, number: int, going: np.ndarray) -> None:
        self._passed[going] += 1.0 / np.minimum(1.0, PLAN.audit / self._shares[self._step[going] + 1])
        if number >= FEWEST:
            for fleet in going[np.isnan(self._next[going, 0])]:
                recent = self._routed[fleet, max(0, number - RECENT) : number].tolist()
                cut = cut_for(SHARES[self._step[fleet] + 1], recent)
                self._next[fleet] = cut.score, cut.share_at
        units = going[~np.isnan(self._next[going, 0])]
        score, draw = self._routed[units, number], self._draws[units, number]
        moved, is_small = _takes(self._next[units], score, draw), _takes(self._cut[units], score, draw)
        difference = np.where(moved, self._small[units, number] - self._big[units, number], 0.0)
        self._audited[units] += moved
        self._units[units] += 1
        payoffs = (
            (difference + PLAN.margin) / (1.0 - PLAN.margin),
            (-np.where(is_small, difference, 0.0) - PLAN.margin) / (1.0 + PLAN.margin),
        )
        for logs, payoff in zip(self._logs, payoffs, strict=True):
            logs[units] += np.log1p(np.array(FRACTIONS) * np.maximum(payoff, -1.0)[:, None])
        self._move(units, number)

    def _move(self, units: np.ndarray, number: int) -> None:
        wealth = [np.log(np.exp(logs[units]) @ np.array(WEIGHTS)) for logs in self._logs]
        attempt = self._attempt[units]
        fell = (self._step[units] > 0) & (wealth[1] >= math.log(1.0 / PLAN.alpha))
        rose = ~fell & (wealth[0] >= np.log(attempt * (attempt + 1) / PLAN.alpha))
        ended = ~fell & ~rose & (self._units[units] >= TURN)
        for fleet in units[rose]:
            self._step[fleet] += 1
            self._cut[fleet] = self._next[fleet]
            self._is_wrong[fleet] |= self._losses(Cut(*self._cut[fleet])) >= PLAN.margin
            if self._step[fleet] == TARGET:
                self._reached[fleet] = self._passed[fleet]
        for fleet in units[fell]:
            self._step[fleet] -= 1
            recent = self._routed[fleet, max(0, number + 1 - RECENT) : number + 1].tolist()
            cut = cut_for(SHARES[self._step[fleet]], recent)
            self._cut[fleet] = cut.score, cut.share_at
        self._attempt[units[fell | ended]] += 1
        anew = units[fell | rose | ended]
        self._next[anew], self._units[anew], self._logs[:, anew] = np.nan, 0, 0.0


def _takes(cuts: np.ndarray, score: np.ndarray, draw: np.ndarray) -> np.ndarray:
    return (score > cuts[:, 0]) | ((score == cuts[:, 0]) & (draw < cuts[:, 1]))


def by_betting(tasks: Tasks, losses: Losses) -> Fleet:
    """One fleet by the product's code."""
    cascade, is_wrong = Cascade(PLAN), False
    small, big = tasks.small.tolist(), tasks.big.tolist()
    passed = audited = 0.0
    for number, (score, draw) in enumerate(zip(tasks.routed.tolist(), tasks.draws.tolist(), strict=True)):
        passed += 1.0 / cascade.draw_share
        routed = cascade.route(score, draw=draw, audit_draw=0.0)
        audited += routed.is_audited
        if routed.is_drawn and cascade.observe(routed, Pair(small[number], big[number])) == "raise":
            is_wrong = is_wrong or losses(cascade.cut) >= PLAN.margin
            if cascade.step == TARGET:
                return Fleet(is_wrong, passed, audited / passed)
    return Fleet(is_wrong, None, audited / passed)


WORLDS = (
    World("graded, no difference", 0.0, True, 3_000, 0.1),
    World("right/wrong, no difference", 0.0, False, 8_000, 0.02),
    World("graded, loss 0.026", 0.026, True, 4_000, 0.1),
    World("right/wrong, loss 0.026", 0.026, False, 4_000, 0.02),
    World("graded, loss 0.05", 0.05, True, 2_000, 0.1),
    World("graded, loss 0.21", 0.21, True, 2_000, 0.1),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleets", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    wrong_by_proof = 0.0
    print(
        f"{options.fleets} fleets, margin {PLAN.margin}, audit {PLAN.audit:.0%}; true loss at each step in brackets\n"
    )
    for world in WORLDS:
        rng = np.random.default_rng(options.seed)
        losses, scores = true_losses(world, rng), tasks_of(world, POPULATION, rng).routed.tolist()
        at_steps = ", ".join(f"{losses(cut_for(share, scores)):+.3f}" for share in SHARES[1 : TARGET + 1])
        print(f"{world.name}, {world.units:,} units ({at_steps})")
        print(f"  {'rule':32}{'fleets':>7}{'raised wrongly':>15}{'at 80 %':>9}{'tasks until then':>18}{'audited':>9}")
        by_proof = list[Fleet]()
        for start in range(0, options.fleets, AT_ONCE):
            fleets = [tasks_of(world, world.units, rng) for _ in range(min(AT_ONCE, options.fleets - start))]
            by_proof += Twins(fleets, losses).run()
            assert by_betting(fleets[0], losses) == by_proof[start], "the twin is not the product"
        print_row("betting, fresh judgement", by_proof)
        print(flush=True)
        wrong_by_proof = max(wrong_by_proof, sum(one.raised_wrongly for one in by_proof) / len(by_proof))
    sys.exit(wrong_by_proof > ALPHA)


def print_row(name: str, fleets: Sequence[Fleet]) -> None:
    count = max(1, len(fleets))
    reached = [one.reached for one in fleets if one.reached is not None]
    median = f"{int(np.median(reached)):,}" if reached else "never"
    wrong, audited = sum(one.raised_wrongly for one in fleets) / count, sum(one.audited for one in fleets) / count
    print(f"  {name:32}{len(fleets):>7}{wrong:>15.1%}{len(reached) / count:>9.1%}{median:>18}{audited:>9.1%}")


if __name__ == "__main__":
    main()
