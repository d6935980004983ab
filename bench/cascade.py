"""python -m bench.cascade [--fleets 2000]: how soon, and how often wrongly, a small model takes over from a big one.

Drives ratchet/experiments/cascade.py with simulated tasks: the small model's group of 8 is scored by a noisy judge, the
best score routes, and audited answers are judged afresh. A raise is wrong where the small model's true loss at the new
cut, over all traffic, is the margin or more. Beside it are two rules with the same audits: a t-test after each unit,
and a share fixed once by 500 labelled tasks, the largest that seems to lose no more than the margin (as FrugalGPT
tunes its thresholds). The last row of each world is the trap: the routing score judges the small model's answer.
Only units are simulated: a task that is not drawn passes time and nothing else. The rules beside get a tenth of the
fleets. Exits 1 if the rule raises more than 5 % of the fleets wrongly.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from ratchet.experiments.cascade import SHARES, Cascade, CascadePlan, Cut, Pair, cut_for

PLAN = CascadePlan()
GROUP, LABELLED, FIRST_UNITS = 8, 500, 10
TARGET = SHARES.index(0.8)
POPULATION = 100_000
ALPHA = 0.05


@dataclass(frozen=True)
class World:
    """`loss`: of the small model's answer against the big one's, in the mean over all tasks."""

    name: str
    loss: float
    graded: bool
    units: int
    noise: float
    """Of the judge, at each look."""


@dataclass(frozen=True)
class Tasks:
    """What the judge says. `routed`: of the best of the small model's group; `small`, `big`: afresh."""

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
Rule = Callable[[Tasks, Losses, np.random.Generator], Fleet]


def true_losses(world: World, rng: np.random.Generator) -> Losses:
    """The loss over all traffic with a cut, from 100,000 tasks of the world."""
    tasks = tasks_of(world, POPULATION, rng)
    order = np.argsort(-tasks.routed, kind="stable")
    scores, sums = -tasks.routed[order], np.concatenate([[0.0], np.cumsum(tasks.true_difference[order])])

    def loss(cut: Cut) -> float:
        above, at = np.searchsorted(scores, -cut.score, "left"), np.searchsorted(scores, -cut.score, "right")
        return -float(sums[above] + cut.share_at * (sums[at] - sums[above])) / POPULATION

    return loss


def by_betting(tasks: Tasks, losses: Losses, rng: np.random.Generator, *, trap: bool = False) -> Fleet:
    cascade, is_wrong = Cascade(PLAN), False
    judged, big = (tasks.routed if trap else tasks.small).tolist(), tasks.big.tolist()
    passed = audited = 0.0
    for number, (score, draw) in enumerate(zip(tasks.routed.tolist(), tasks.draws.tolist(), strict=True)):
        passed += 1.0 / cascade.draw_share
        routed = cascade.route(score, draw=draw, audit_draw=0.0)
        audited += routed.is_audited
        if routed.is_drawn and cascade.observe(routed, Pair(judged[number], big[number])) == "raise":
            is_wrong = is_wrong or losses(cascade.cut) >= PLAN.margin
            if cascade.step == TARGET:
                return Fleet(is_wrong, passed, audited / passed)
    return Fleet(is_wrong, None, audited / passed)


def by_t_test(tasks: Tasks, losses: Losses, rng: np.random.Generator) -> Fleet:
    """The same steps and audits; up where p ≤ 0.05 for a mean above −margin, after each unit from the tenth on."""
    cascade, is_wrong, total, squares, count = Cascade(PLAN), False, 0.0, 0.0, 0
    small, big = tasks.small.tolist(), tasks.big.tolist()
    passed = audited = 0.0
    for number, (score, draw) in enumerate(zip(tasks.routed.tolist(), tasks.draws.tolist(), strict=True)):
        passed += 1.0 / cascade.draw_share
        routed = cascade.route(score, draw=draw, audit_draw=0.0)
        audited += routed.is_audited
        if not routed.is_drawn:
            continue
        value = (small[number] - big[number] if routed.is_audited else 0.0) + PLAN.margin
        total, squares, count = total + value, squares + value * value, count + 1
        if cascade.next_cut is not None and _is_significant(total, squares, count):
            cascade.cut, cascade.step, cascade.next_cut = cascade.next_cut, cascade.step + 1, None
            total, squares, count = 0.0, 0.0, 0
            is_wrong = is_wrong or losses(cascade.cut) >= PLAN.margin
            if cascade.step == TARGET:
                return Fleet(is_wrong, passed, audited / passed)
    return Fleet(is_wrong, None, audited / passed)


def _is_significant(total: float, squares: float, count: int) -> bool:
    if count < FIRST_UNITS:
        return False
    mean = total / count
    spread = math.sqrt(max(squares / count - mean * mean, 1e-12) / (count - 1))
    return mean / spread >= QUANTILES[min(count, len(QUANTILES) - 1)]


def _t_quantile(degrees: int) -> float:
    """Fisher's expansion; from nine degrees on it is right to three digits."""
    z = NormalDist().inv_cdf(1.0 - ALPHA)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


QUANTILES = [math.inf, math.inf, *(_t_quantile(count - 1) for count in range(2, 2_000))]


def by_labels(tasks: Tasks, losses: Losses, rng: np.random.Generator) -> Fleet:
    """Fixed for good after 500 labelled tasks."""
    scores, small, big = (one[:LABELLED].tolist() for one in (tasks.routed, tasks.small, tasks.big))
    best = 0
    for step, share in enumerate(SHARES[1 : TARGET + 1], 1):
        cut = cut_for(share, scores)
        rows = zip(scores, tasks.draws[:LABELLED].tolist(), small, big, strict=True)
        taken = [s - b for routed, draw, s, b in rows if cut.takes(routed, draw)]
        if sum(taken) / LABELLED >= -PLAN.margin:
            best = step
    is_wrong = best > 0 and losses(cut_for(SHARES[best], scores)) >= PLAN.margin
    return Fleet(is_wrong, LABELLED if best == TARGET else None, 1.0)


def by_routing_score(tasks: Tasks, losses: Losses, rng: np.random.Generator) -> Fleet:
    return by_betting(tasks, losses, rng, trap=True)


RULES: dict[str, Rule] = {
    "betting, fresh judgement": by_betting,
    "t-test after each unit": by_t_test,
    "500 labels, then fixed": by_labels,
    "betting, routing score (trap)": by_routing_score,
}
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
        print(f"  {'rule':32}{'raised wrongly':>15}{'at 80 %':>9}{'tasks until then':>18}{'audited':>9}")
        by_rule: dict[str, list[Fleet]] = {name: [] for name in RULES}
        for number in range(options.fleets):
            tasks = tasks_of(world, world.units, rng)
            for name, rule in RULES.items():
                if rule is by_betting or number % 10 == 0:
                    by_rule[name].append(rule(tasks, losses, rng))
        for name, fleets in by_rule.items():
            wrong = sum(one.raised_wrongly for one in fleets) / len(fleets)
            reached = [one.reached for one in fleets if one.reached is not None]
            median = f"{int(np.median(reached)):,}" if reached else "never"
            audited = float(np.mean([one.audited for one in fleets]))
            print(f"  {name:32}{wrong:>15.1%}{len(reached) / len(fleets):>9.1%}{median:>18}{audited:>9.1%}")
            if name.startswith("betting, fresh"):
                wrong_by_proof = max(wrong_by_proof, wrong)
        print(flush=True)
    sys.exit(wrong_by_proof > ALPHA)


if __name__ == "__main__":
    main()
