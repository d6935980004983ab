"""The scorer's noise, from equal answers that got unequal scores."""

from __future__ import annotations

import random

import pytest

from services.trainer.data.score_noise import ScoreNoise


def test_answers_that_were_scored_once_show_no_noise() -> None:
    noise = ScoreNoise()

    noise.add(0, [(11, 0.2), (12, 0.9)])

    assert noise.deviation(0) == 0.0


def test_two_scores_of_one_answer_do() -> None:
    noise = ScoreNoise()

    noise.add(0, [(11, 0.4), (11, 0.6), (12, 0.9)])

    assert noise.deviation(0) == pytest.approx(0.1 * 2**0.5)


def test_it_is_measured_for_each_scorer() -> None:
    noise = ScoreNoise()

    noise.add(0, [(11, 0.4), (11, 0.6)])
    noise.add(1, [(11, 0.5), (11, 0.5)])

    assert (noise.deviation(1), noise.deviation(2)) == (0.0, 0.0)


def test_the_true_deviation_is_found_whatever_the_answers_are_worth() -> None:
    noise, rng = ScoreNoise(), random.Random(7)

    for group in range(2000):
        worth = rng.random()
        noise.add(0, [(group, worth + rng.gauss(0, 0.05)) for _ in range(3)])

    assert noise.deviation(0) == pytest.approx(0.05, rel=0.05)
