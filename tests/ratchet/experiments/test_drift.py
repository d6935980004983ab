"""The scorer's anchors: noise is no fault; a shift, one version's favour and polarisation are found and told."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from statistics import fmean

import pytest

from ratchet.experiments.drift import ROUNDS_AT_ONCE, Detector, Drift, DriftWatch, Rescored, noise_of

VALUES = [0.1 + 0.8 * n / 15 for n in range(16)]
NOISE = 0.1
Scorer = Callable[[float, str], float]


def as_before(value: float, version: str) -> float:
    return value


def rounds(
    watch: DriftWatch,
    scorer: Scorer,
    count: int,
    *,
    noise: float = NOISE,
    seed: int = 1,
    versions: int = 1,
    values: Sequence[float] = VALUES,
) -> int | None:
    """In how many rounds a drift was found, or excluded; None where it was not."""
    chance = random.Random(seed)

    def score(value: float) -> float:
        return min(1.0, max(0.0, value + chance.gauss(0.0, noise)))

    answers = [(f"v{n}", value) for n in range(versions) for value in values]
    first = [[score(value) for _ in range(8)] for _, value in answers]
    for number in range(1, count + 1):
        watch.observe(
            [
                Rescored(version, scores, score(scorer(value, version)))
                for (version, value), scores in zip(answers, first, strict=True)
            ],
            noise_of(first),
        )
        if watch.drift is not None or watch.is_back:
            return number
    return None


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_no_drift(seed: int) -> None:
    assert rounds(DriftWatch(0.05), as_before, 200, seed=seed) is None


@pytest.mark.parametrize("seed", range(5))
def test_noise_that_doubles_is_no_drift(seed: int) -> None:
    chance = random.Random(seed)
    assert rounds(DriftWatch(0.05), lambda value, _: value + chance.gauss(0.0, 0.17), 100, seed=seed) is None


def test_answers_of_equal_worth_and_a_noisy_scorer_do_not_look_flattened() -> None:
    # a reference that is high by luck falls back: where it also chose its side, 3 of 10 of these found a drift
    found = [rounds(DriftWatch(0.05), as_before, 200, noise=0.2, seed=seed, values=[0.5] * 16) for seed in range(10)]
    assert found == [None] * 10


@pytest.mark.parametrize(
    ("scorer", "kind", "version"),
    [
        (lambda value, _: value + 0.1, "up", ""),
        (lambda value, _: value - 0.1, "down", ""),
        (lambda value, _: 0.5 + 2.0 * (value - 0.5), "polarised", ""),
        (lambda value, _: 0.5 + 0.3 * (value - 0.5), "flattened", ""),
        (lambda value, version: value + 0.15 * (version == "v1"), "up", "v1"),
    ],
)
def test_what_moves_is_found_and_told_apart(scorer: Scorer, kind: str, version: str) -> None:
    watch = DriftWatch(0.05)
    found = rounds(watch, scorer, 3 * ROUNDS_AT_ONCE, versions=2 if version else 1)
    assert found is not None
    assert watch.drift is not None
    assert (watch.drift.kind, watch.drift.version) == (kind, version)


def test_one_that_polarises_moves_no_mean(scorer: Scorer = lambda value, _: 0.5 + 2.0 * (value - 0.5)) -> None:
    assert fmean(scorer(value, "") - value for value in VALUES) == pytest.approx(0.0, abs=1e-9)


def test_within_the_tolerance_nothing_is_said() -> None:
    assert rounds(DriftWatch(0.05), lambda value, _: value + 0.02, 300) is None


def test_a_scorer_without_noise_is_caught_in_a_round_or_two() -> None:
    watch = DriftWatch(0.05)
    assert (rounds(watch, lambda value, _: value - 0.2, 5, noise=0.0) or 9) <= 2
    assert watch.drift == Drift("down", "", pytest.approx(0.2, abs=0.05))


def test_it_is_back_only_once_it_is() -> None:
    assert rounds(DriftWatch(0.05, for_return=True), lambda value, _: value + 0.1, 200) is None
    back = rounds(DriftWatch(0.05, for_return=True), as_before, 3 * ROUNDS_AT_ONCE)
    assert back is not None
    polarised = DriftWatch(0.05, for_return=True)
    assert rounds(polarised, lambda value, _: 0.5 + 2.0 * (value - 0.5), 200) is None


def test_another_round_is_asked_for_while_it_may_decide() -> None:
    watch = DriftWatch(0.05)
    assert not watch.is_undecided
    rounds(watch, lambda value, _: value + 0.1, 2)
    assert watch.is_undecided
    assert rounds(watch, lambda value, _: value + 0.1, 60) is not None
    assert not watch.is_undecided
    assert not DriftWatch(0.05, for_return=True).is_undecided


def test_the_sum_of_bets_grows_by_one_a_round_where_nothing_changes() -> None:
    # an e-detector: after n rounds at most n in expectation, here with coins, its worst case (payoff ±1, fair)
    chance, reached = random.Random(5), []
    for _ in range(4000):
        detector = Detector()
        for _ in range(4):
            detector.observe([chance.choice((-1.0, 1.0)) for _ in range(2)])
        reached.append(math.exp(detector.log_e))
    assert fmean(reached) == pytest.approx(4.0, rel=0.15)


def test_noise_is_pooled_over_answers_scored_twice() -> None:
    assert noise_of([]) == noise_of([[0.3]]) == 0.0
    assert noise_of([[0.1, 0.3], [0.5, 0.7], [0.9]]) == pytest.approx(math.sqrt(0.02))
