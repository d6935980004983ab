"""The rule by which a small model takes over from a big one (ratchet/experiments/cascade.py)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.experiments.cascade import (
    EVERYTHING,
    FEWEST,
    NOTHING,
    SHARES,
    TURN,
    Cascade,
    CascadePlan,
    Pair,
    Routed,
    cut_for,
)

PLAN = CascadePlan()
SCORES = [number / 100 for number in range(100)]


def with_scores(step: int = 0) -> Cascade:
    return Cascade(PLAN, step=step, cut=cut_for(SHARES[step], SCORES), scores=SCORES)


def unit(cascade: Cascade, score: float = 1.0) -> Routed:
    routed = cascade.route(score, draw=0.0, audit_draw=0.0)
    assert routed.is_drawn
    return routed


def feed(cascade: Cascade, pair: Pair, most: int) -> tuple[str | None, int]:
    """The first move, and after how many units."""
    for count in range(1, most + 1):
        if move := cascade.observe(unit(cascade), pair):
            return move, count
    return None, most


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=60), st.floats(0.0, 1.0))
def test_a_cut_gives_the_small_model_its_share_also_among_equal_scores(scores: list[float], share: float) -> None:
    cut = cut_for(share, scores)
    taken = sum(sum(cut.takes(score, draw / 1000) for draw in range(1000)) / 1000 for score in scores)
    assert taken / len(scores) == pytest.approx(share, abs=0.005)


def test_a_group_without_a_score_is_never_the_small_models() -> None:
    assert not EVERYTHING.takes(None, 0.0)
    assert not NOTHING.takes(1.0, 0.0)


def test_nothing_is_tested_before_enough_scores_are_known() -> None:
    cascade = Cascade(PLAN)
    early = [cascade.route(1.0, draw=0.0, audit_draw=0.0).is_drawn for _ in range(FEWEST)]
    assert not any(early)
    assert unit(cascade).is_audited


def test_only_tasks_that_the_next_step_would_move_are_audited() -> None:
    cascade = with_scores()
    assert unit(cascade, score=0.95).is_audited
    assert not unit(cascade, score=0.5).is_audited


def test_equal_answers_raise_the_share_one_step_at_a_time() -> None:
    cascade = with_scores()
    tested = cascade.route(0.0, draw=0.0, audit_draw=0.0) and cascade.next_cut
    move, _ = feed(cascade, Pair(0.8, 0.8), 300)
    assert (move, cascade.step, cascade.cut) == ("raise", 1, tested)
    assert cascade.evidence.units == 0
    assert cascade.evidence.raise_at == pytest.approx(40)


def test_a_loss_beyond_the_margin_makes_it_fall_and_the_next_attempt_needs_more() -> None:
    cascade = with_scores(step=2)
    move, count = feed(cascade, Pair(0.2, 0.8), 100)
    assert (move, cascade.step) == ("fall", 1)
    assert count < 20
    assert cascade.evidence.raise_at == pytest.approx(120)


def test_a_loss_within_the_next_step_alone_never_makes_it_fall() -> None:
    cascade = with_scores()
    assert feed(cascade, Pair(0.2, 0.8), 500) == (None, 500)


@pytest.mark.parametrize("pair", [Pair(None, 0.5), Pair(0.5, None), Pair(None, None)])
def test_nobody_gains_by_an_answer_that_can_t_be_judged(pair: Pair) -> None:
    cascade = with_scores()
    cascade.observe(unit(cascade), pair)
    assert cascade.evidence.difference < 0
    assert cascade.evidence.not_worse < 1


def test_evidence_that_brings_no_step_begins_anew_and_costs_an_attempt() -> None:
    cascade = with_scores(step=1)
    coin = random.Random(1)
    routed = [(unit(cascade), Pair(float(coin.random() < 0.47), float(coin.random() < 0.5))) for _ in range(TURN)]
    moves = [cascade.observe(*one) for one in routed]
    assert set(moves[:-1]) == {None}
    assert (moves[-1], cascade.step, cascade.attempt) == ("anew", 1, 2)


def test_at_the_last_step_it_can_only_fall() -> None:
    last = len(SHARES) - 1
    assert feed(with_scores(step=last), Pair(1.0, 0.0), 300) == (None, 300)
    assert feed(with_scores(step=last), Pair(0.0, 1.0), 300)[0] == "fall"


def test_a_true_loss_at_the_margin_is_raised_in_few_fleets_ever() -> None:
    """All of it in the tasks of the first step, which lose 0.2 each."""
    raised = 0
    for seed in range(200):
        coin, cascade = random.Random(seed), with_scores()
        for _ in range(300):
            is_moved = coin.random() < 0.1
            pair = Pair(float(coin.random() < 0.6), float(coin.random() < 0.8))
            if cascade.observe(unit(cascade, 1.0 if is_moved else 0.0), pair) == "raise":
                raised += 1
                break
    assert raised <= 0.05 * 200


def test_a_restart_with_the_same_units_comes_to_the_same_evidence() -> None:
    units = [(1.0, Pair(0.7, 0.8)), (0.2, Pair()), (0.99, Pair(1.0, 0.4))]
    first, second = with_scores(step=1), with_scores(step=1)
    for cascade in (first, second):
        for score, pair in units:
            cascade.observe(unit(cascade, score), pair)
    assert first.evidence == second.evidence
