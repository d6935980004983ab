"""A scorer that is noisy, moves, polarises or comes back, watched by its anchors: many runs at once, checked hourly.

The twin of ratchet/experiments/drift.py in numpy; `assert_twin_equals_product` holds the two together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.decision.streams import Floats
from ratchet.experiments.drift import (
    ALARM,
    BACK,
    FRACTIONS,
    REFERENCE_ROUNDS,
    ROUNDS_AT_ONCE,
    SIDE_ROUNDS,
    SMALLEST_NOISE,
    SUSPICION,
    DriftWatch,
    Rescored,
    noise_of,
)

TOLERANCE = 0.05
EACH = 16
"""Anchors of a version."""
DAY, WEEK = 24, 168
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Judge:
    """A truth about the scorer, from its second day on; answers are worth 0.1 to 0.9, or all `worth`."""

    name: str
    noise: float = 0.1
    shift: float = 0.0
    stretch: float = 0.0
    """Scores move away from 0.5 by this share of their distance."""
    only_second: bool = False
    """Only the answers of the second of two versions are scored otherwise."""
    versions: int = 1
    worth: float | None = None
    back_after: int | None = None
    """Checks."""
    checks: int = DAY + WEEK


JUDGES = (
    Judge("a week of noise 0.1, nothing moved"),
    Judge("a week of noise 0.1, three versions", versions=3),
    Judge("a week of noise 0.2, nothing moved", noise=0.2),
    Judge("a week of noise 0.2, answers of equal worth", noise=0.2, worth=0.5),
    Judge("+0.10, noise 0.1", shift=0.1),
    Judge("−0.10, noise 0.1", shift=-0.1),
    Judge("+0.10, noise 0.1, three versions", shift=0.1, versions=3),
    Judge("+0.10, no noise", noise=0.0, shift=0.1),
    Judge("+0.10, noise 0.2", noise=0.2, shift=0.1),
    Judge("polarised: twice as far from 0.5", stretch=1.0),
    Judge("polarised: half as far again", stretch=0.5),
    Judge("flattened: half as far from 0.5", stretch=-0.5),
    Judge("+0.10, the second version's answers only", shift=0.1, only_second=True, versions=2),
    Judge("+0.10, back after a day", shift=0.1, back_after=DAY),
)


@dataclass(frozen=True)
class Watched:
    """Shares of the runs, but for the last two."""

    false_alarms: float
    """Before the scorer moved, or ever where it does not."""
    found_in: tuple[float, float, float]
    """Within 1, 3 and 24 checks."""
    wrongly_back: float
    back_in: float | None
    """Checks until the pause ends once the scorer is back, in 99 % of the runs."""
    rounds: float
    """Rounds of a check, on average."""


class Watches:
    """DriftWatch for many runs. `first`: the anchors' first scores, [rounds, runs, anchors]."""

    def __init__(self, first: Floats, noise: Floats, versions: int) -> None:
        side = first[:SIDE_ROUNDS].mean(0)
        self._sides = np.sign(side - np.median(side, axis=1, keepdims=True))  # 1 of the high ones, −1 of the low ones
        self._reference, self._reference_of_sides = first.mean(0), first[SIDE_ROUNDS:].mean(0)
        self._cut = 2.0 * np.maximum(noise, SMALLEST_NOISE)[:, None]
        self._versions = versions
        tests = 4 + (2 * versions if versions > 1 else 0)
        self._logs = np.full((len(side), tests, len(FRACTIONS)), -np.inf)
        self.returning = np.zeros(len(side), dtype=bool)

    def observe(self, rows: NDArray[np.int64], score: Floats) -> None:
        """A new score of each anchor, [rows, anchors]."""
        change, change_of_sides = score - self._reference[rows], score - self._reference_of_sides[rows]
        returning = self.returning[rows, None]

        def growth(moved: Floats, counted: Floats) -> Floats:
            beyond = np.where(returning, TOLERANCE - moved, moved - TOLERANCE) / self._cut[rows]
            payoff = np.clip(beyond, -1.0, 1.0) * counted
            return np.stack([np.log1p(fraction * payoff).sum(1) for fraction in FRACTIONS], axis=1)

        sides = self._sides[rows]
        parts = [
            growth(sign * direction * moved, np.abs(direction))
            for direction, moved in ((np.ones_like(change), change), (sides, change_of_sides))
            for sign in (1.0, -1.0)
        ]
        if self._versions > 1:
            for version in range(self._versions):
                its = np.zeros_like(change)
                its[:, version * EACH : (version + 1) * EACH] = 1.0
                parts += [growth(sign * change, its) for sign in (1.0, -1.0)]
        self._logs[rows] = np.logaddexp(self._logs[rows], 0.0) + np.stack(parts, axis=1)

    def evidence(self, rows: NDArray[np.int64]) -> Floats:
        found: Floats = np.logaddexp.reduce(self._logs[rows], axis=2) - math.log(len(FRACTIONS))
        return found

    def turn(self, rows: NDArray[np.int64], *, returning: bool) -> None:
        self.returning[rows] = returning
        self._logs[rows] = -np.inf


def watch(judge: Judge, runs: int, seed: int) -> Watched:
    """The scorer is as it was for a day; then it is as the judge says."""
    rng = np.random.default_rng(seed)
    worth = rng.uniform(0.1, 0.9, (runs, EACH * judge.versions))
    if judge.worth is not None:
        worth[:] = judge.worth
    first = np.stack([scores(worth, judge, rng, moved=False) for _ in range(REFERENCE_ROUNDS)])
    watches = Watches(first, np.sqrt(first.var(0, ddof=1).mean(1)), judge.versions)
    found, back, rounds = np.full(runs, -1), np.full(runs, -1), 0
    until = judge.checks if judge.back_after is None else DAY + judge.back_after
    for check in range(judge.checks):
        moved = DAY <= check < until
        rows = np.arange(runs)
        for _ in range(ROUNDS_AT_ONCE):
            rounds += len(rows)
            watches.observe(rows, scores(worth[rows], judge, rng, moved=moved))
            evidence, returning = watches.evidence(rows), watches.returning[rows]
            alarm = ~returning & (evidence.max(1) >= ALARM)
            is_back = returning & (evidence.min(1) >= BACK)
            found[rows[alarm & (found[rows] < 0)]] = check
            back[rows[is_back]] = check
            watches.turn(rows[alarm], returning=True)
            watches.turn(rows[is_back], returning=False)
            promising = np.where(returning, evidence.min(1), evidence.max(1)) >= SUSPICION
            rows = rows[promising & ~alarm & ~is_back]
            if not len(rows):
                break
    return summary(judge, found, back, until, rounds / runs / judge.checks)


def scores(worth: Floats, judge: Judge, rng: np.random.Generator, *, moved: bool) -> Floats:
    if moved:
        other = 0.5 + (1 + judge.stretch) * (worth - 0.5) + judge.shift
        worth = np.where(np.arange(worth.shape[1]) >= EACH, other, worth) if judge.only_second else other
    return np.clip(worth + rng.normal(0, judge.noise, worth.shape) if judge.noise else worth, 0.0, 1.0)


def summary(judge: Judge, found: NDArray[np.int64], back: NDArray[np.int64], until: int, rounds: float) -> Watched:
    moves = bool(judge.shift or judge.stretch)
    alarmed = found >= 0
    within = [float((alarmed & (found >= DAY) & (found < DAY + checks)).mean()) for checks in (1, 3, DAY)]
    returned = back[alarmed & (back >= until)] - until + 1
    all_back = moves and judge.back_after is not None and len(returned) == alarmed.sum()
    return Watched(
        false_alarms=float((alarmed & (found < DAY) if moves else alarmed).mean()),
        found_in=(within[0], within[1], within[2]),
        wrongly_back=float(((back >= 0) & (back < until)).mean()),
        back_in=float(np.quantile(returned, 0.99)) if all_back and len(returned) else None,
        rounds=rounds,
    )


def assert_twin_equals_product(rounds: int = 60) -> int:
    """Round by round, of one run with two versions of which one moves. Returns the rounds compared."""
    rng = np.random.default_rng(3)
    judge = Judge("twin", shift=0.08, only_second=True, versions=2)
    worth = rng.uniform(0.1, 0.9, (1, 2 * EACH))
    first = np.stack([scores(worth, judge, rng, moved=False) for _ in range(REFERENCE_ROUNDS)])
    by_anchor = first[:, 0, :].T.tolist()
    noise = noise_of(by_anchor)
    for returning in (False, True):
        twin, product = Watches(first, np.array([noise]), 2), DriftWatch(TOLERANCE, for_return=returning)
        twin.turn(np.array([0]), returning=returning)
        for number in range(rounds):
            score = scores(worth, judge, rng, moved=number > rounds // 2)
            twin.observe(np.array([0]), score)
            answers = zip(by_anchor, score[0].tolist(), strict=True)
            product.observe([Rescored(f"v{n // EACH}", old, new) for n, (old, new) in enumerate(answers)], noise)
            evidence = product.evidence
            tests = [("up", ""), ("down", ""), ("polarised", ""), ("flattened", "")]
            tests += [(kind, version) for version in ("v0", "v1") for kind in ("up", "down")]
            expected = [evidence[test] for test in tests]  # type: ignore[index]
            np.testing.assert_allclose(twin.evidence(np.array([0]))[0], expected, rtol=1e-6, atol=1e-6)
    return 2 * rounds
