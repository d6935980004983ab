from __future__ import annotations

from itertools import combinations
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.experiments.served import Quality, best_of


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.data())
def test_the_best_of_some_is_the_mean_over_all_ways_to_draw_so_many(scores: list[float], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(scores)))
    assert best_of(scores, count) == pytest.approx(fmean(max(drawn) for drawn in combinations(scores, count)))


def test_the_best_is_chosen_by_its_score_and_counts_with_what_it_is_worth() -> None:
    assert best_of([0.1, 0.9], 2, [1.0, 0.25]) == 0.25
    assert best_of([0.1, 0.9], 1, [1.0, 0.25]) == 0.625


def test_a_group_is_one_observation_and_one_without_a_score_is_none() -> None:
    quality = Quality()
    quality.observe([0.2, 0.6, None], ["a", "b", "a"], 0.6)
    quality.observe([None], ["c"], None)
    quality.observe([1.0], ["c"], 1.0)

    assert (quality.served.mean, quality.single.mean, quality.distinct.mean) == (0.8, pytest.approx(0.7), 2.0)
    assert (quality.served.count, quality.distinct.count) == (2, 1)
