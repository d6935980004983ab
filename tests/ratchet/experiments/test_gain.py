"""A gain is significant only where the whole interval of the paired difference lies above 0."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from ratchet.experiments.gain import estimate, gain, served_gain

SCORES = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=4)


def test_the_interval_is_the_mean_and_twice_its_standard_error() -> None:
    found = estimate([0.0, 1.0] * 50)

    assert found.mean == 0.5
    assert abs((found.high - found.mean) - 1.96 * 0.502519 / 10) < 1e-5
    assert found.tasks == 100


def test_the_samples_of_a_task_count_as_one_observation() -> None:
    found = gain({"a": [0.0, 1.0], "b": [0.0] * 8}, {"a": [1.0], "b": [0.5, 0.5]})

    assert (found.before.mean, found.after.mean, found.difference.mean) == (0.25, 0.75, 0.5)
    assert found.difference.tasks == 2


def test_the_interval_of_a_mean_score_ends_where_scores_do() -> None:
    found = gain({"a": [0.0], "b": [0.0], "c": [0.1]}, {"a": [1.0], "b": [1.0], "c": [0.9]})

    assert (found.before.low, found.after.high) == (0.0, 1.0)
    assert found.difference.high > 1.0 - 0.2 / 3


def test_a_task_without_answers_on_one_side_is_left_out() -> None:
    found = gain({"a": [0.0], "b": [1.0]}, {"a": [1.0], "b": []})

    assert (found.before.mean, found.before.tasks) == (0.0, 1)


def test_pairing_proves_what_the_tasks_own_difficulty_would_hide() -> None:
    difficulty = [index / 20 for index in range(20)]
    before = {str(index): [value * 0.8] for index, value in enumerate(difficulty)}
    after = {str(index): [value * 0.8 + 0.05 + 0.001 * (index % 3)] for index, value in enumerate(difficulty)}

    found = gain(before, after)

    assert found.significant
    assert found.after.low < found.before.high, "the two intervals overlap"


def test_no_gain_and_too_few_tasks_are_not_significant() -> None:
    same = {str(index): [index % 2] for index in range(50)}

    assert not gain(same, same).significant
    assert not gain({"a": [0.0]}, {"a": [1.0]}).significant
    assert not gain({}, {}).significant


def test_of_intervals_of_no_gain_about_one_in_forty_lies_above_zero() -> None:
    rng = random.Random(5)

    def draw() -> dict[str, list[float]]:
        return {str(task): [float(rng.random() < 0.5) for _ in range(4)] for task in range(60)}

    wrong = sum(gain(draw(), draw()).significant for _ in range(400))

    assert 2 <= wrong <= 24


@given(st.dictionaries(st.text(max_size=3), SCORES), st.dictionaries(st.text(max_size=3), SCORES))
def test_the_difference_is_that_of_the_means(before: dict[str, list[float]], after: dict[str, list[float]]) -> None:
    found = gain(before, after)

    assert abs(found.after.mean - found.before.mean - found.difference.mean) < 1e-9
    assert found.difference.low <= found.difference.mean <= found.difference.high


def test_what_is_served_is_worth_what_the_best_scored_answer_is() -> None:
    found = served_gain({"a": [(0.9, 0.0), (0.1, 1.0)]}, {"a": [(0.2, 0.0), (None, 1.0), (0.3, 1.0)]})

    assert (found.before.mean, found.after.mean) == (0.0, 1.0)
