"""The benchmark of the promotion decision simulates the product, and finds what it is there to find."""

from __future__ import annotations

from dataclasses import replace

from bench.decision.equality import assert_twin_equals_product
from bench.decision.lifetimes import lifetimes, simulate_watch
from bench.decision.samples import World, run
from bench.decision.served import NULLS, assert_served_twin_equals_product, found_in
from bench.decision.shadow import World as ReplayWorld
from bench.decision.shadow import assert_twin_equals_product as assert_replay_twin_equals_product
from bench.decision.shadow import replays
from bench.decision.simulate import simulate
from bench.decision.streams import Scenario


def test_the_vectorised_twin_decides_as_the_product_does() -> None:
    assert assert_twin_equals_product(runs=2) > 500


def test_a_drifting_ramp_fools_pooled_means_and_not_the_product() -> None:
    results = simulate(Scenario("A/A, ramp, drift", drift=0.5, units=600), runs=100, seed=2)

    assert results["ratchet"].promoted <= 0.1
    assert results["t-test"].promoted > 0.5


def test_a_chain_of_longer_candidates_stops_before_the_second() -> None:
    life = lifetimes(Scenario("longer", effect=0.1, longer=1.2, units=600), candidates=3, fleets=30, seed=1)

    assert life.any >= 0.3
    assert life.more_than(1) <= 0.1


def test_candidates_that_are_as_long_go_on_being_promoted() -> None:
    life = lifetimes(Scenario("better", effect=0.1, units=600), candidates=3, fleets=30, seed=1)

    assert life.promotions[3] >= 0.8


def test_many_candidates_that_are_no_better_share_one_budget_of_errors() -> None:
    life = lifetimes(Scenario("A/A", units=200, ramp=(0.5,)), candidates=20, fleets=60, seed=1)

    assert life.any <= 0.2


def test_what_slipped_through_is_demoted_by_the_watch_over_it() -> None:
    fleets = 30
    assert simulate_watch(Scenario("worse", effect=-0.1, units=2000), fleets=fleets, seed=1).demoted >= 0.9
    assert simulate_watch(Scenario("equal", units=1000), fleets=fleets, seed=1).demoted <= 0.1


def test_half_of_a_group_is_saved_where_it_is_enough_and_is_taken_back_by_proof_only() -> None:
    enough, worse = run(World(0.8, tasks=6000), seed=1), run(World(0.8, 2000, 0.2, tasks=3000), seed=1)

    assert enough.share >= 0.4
    assert (enough.fewest, enough.returns, worse.returns) == (4, 0, 1)


def test_the_twin_of_the_replay_is_the_product_pair_by_pair() -> None:
    assert assert_replay_twin_equals_product(runs=2) > 300


def test_a_replay_refuses_what_is_far_worse_and_hardly_ever_an_equal_one() -> None:
    assert replays(ReplayWorld("equal"), runs=200, seed=1).refused <= 0.05
    assert replays(ReplayWorld("worse", effect=-0.2), runs=50, seed=1).refused == 1.0


def test_the_twin_of_second_verdicts_decides_as_the_product_does() -> None:
    assert assert_served_twin_equals_product(runs=1, units=200) > 200


def test_what_serves_users_worse_is_promoted_for_its_single_answers_without_second_verdicts_only() -> None:
    world = replace(NULLS[0], units=1000)
    without, one = (found_in(world, runs=40, seed=2, is_judged_again=again) for again in (False, True))

    assert without.promoted[0] > 0.9
    assert one.promoted[0] <= 0.1
