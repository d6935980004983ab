"""What experiments may use together: errors over all candidates, limits over all promotions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.experiments.effect import factor_of, loss_of
from ratchet.experiments.experiment import Experiment
from ratchet.experiments.lifetime import after_replay, alpha_of, limit_plan, limits_left, watch_plan
from schemas.records.evidence import Change, ExperimentPlan, ReplayedEvidence, Verdict
from services.orchestrator.settings import OrchestratorSettings
from tests.ratchet.experiments.making_experiments import HALF, Traffic, run

FLEET_S = OrchestratorSettings.read(experiment_min_age_s=0.0).experiments.canary
LIMITS = FLEET_S.limits
assert LIMITS is not None


def plan(**since_base: float) -> ExperimentPlan:
    at_half = FLEET_S.model_copy(update={"ramp": HALF, "max_units": 3000})
    return limit_plan(at_half, nth=1, since_base=Change(**since_base))


def test_all_candidates_together_have_twice_the_rate_of_the_first() -> None:
    parts = [alpha_of(0.05, nth) for nth in range(1, 10_000)]

    assert parts[0] == 0.05
    assert 0.0999 < sum(parts) < 0.1


@given(st.floats(0.2, 5.0))
def test_a_factor_of_size_and_its_loss_say_the_same(factor: float) -> None:
    assert factor_of(-loss_of(factor)) == pytest.approx(factor)


@given(success=st.floats(-1, 1), refused=st.floats(-1, 1), length=st.floats(0.1, 10.0), latency=st.floats(0.1, 10.0))
def test_what_was_used_and_what_is_left_are_the_limit_at_most(
    success: float, refused: float, length: float, latency: float
) -> None:
    used = Change(success=success, refused=refused, length=length, latency=latency)

    left = limits_left(LIMITS, used)

    assert length * left.length <= LIMITS.length * 1.0001 or left.length == LIMITS.length
    assert max(left.length / LIMITS.length, left.latency / LIMITS.latency) <= 1
    assert (left.success <= LIMITS.success, left.refused <= LIMITS.refused) == (True, True)
    assert -0.5 < left.success < 0.5


def test_a_candidate_as_long_as_the_first_may_be_is_refused_after_one_that_was_longer() -> None:
    longer = Traffic(effect=0.1, candidate_length=57.0)

    first = run(Experiment(plan()), longer, 3000)
    assert first.decision.verdict is Verdict.PROMOTE
    change = first.decision.evidence.change
    assert change is not None
    assert change.length == pytest.approx(1.14, abs=0.1)

    second = run(Experiment(plan(length=1.25)), Traffic(effect=0.1, candidate_length=57.0, seed=2), 3000)
    assert second.decision.verdict in (Verdict.ROLL_BACK, Verdict.INCONCLUSIVE)
    assert "length" in second.decision.reason


def test_a_candidate_that_refuses_what_its_primary_answers_is_harmful() -> None:
    decision = run(Experiment(plan()), Traffic(effect=0.1, candidate_refused=0.3), 3000).decision

    assert decision.verdict is Verdict.ROLL_BACK
    assert "most of all in refusals" in decision.reason


def test_answers_whose_mean_is_beyond_the_limit_are_not_promoted_however_few_they_are() -> None:
    """One in ten answers is eleven times as long: the usual one is as before, the mean twice as large."""
    traffic = Traffic(effect=0.1, candidate_endless=0.1)

    decision = run(Experiment(plan()), traffic, 3000).decision

    assert decision.verdict in (Verdict.ROLL_BACK, Verdict.INCONCLUSIVE)
    assert "length" in decision.reason


def test_a_candidate_as_good_at_half_the_length_is_promoted_where_the_goal_is_cheaper() -> None:
    cheaper = OrchestratorSettings.read(experiment_min_age_s=0.0, promote_goal="cheaper").experiments.canary
    by = limit_plan(cheaper.model_copy(update={"ramp": HALF, "max_units": 3000}), nth=1, since_base=Change())

    half = run(Experiment(by), Traffic(candidate_length=25.0), 3000).decision
    equal = run(Experiment(by), Traffic(), 3000).decision
    worse = run(Experiment(by), Traffic(effect=-0.05, candidate_length=25.0), 3000).decision

    assert (half.verdict, half.reason[:7]) == (Verdict.PROMOTE, "shorter")
    assert equal.verdict is Verdict.INCONCLUSIVE
    assert worse.verdict is Verdict.ROLL_BACK


def test_cheaper_candidates_together_lose_no_more_than_the_margin() -> None:
    cheaper = OrchestratorSettings.read(promote_goal="cheaper").experiments.canary

    margins = [
        limit_plan(cheaper, nth=1, since_base=Change(score=score)).min_gain for score in (0.1, 0.0, -0.01, -0.02)
    ]

    assert margins == pytest.approx([-0.02, -0.02, -0.01, 0.0])


def test_a_primary_below_the_base_must_be_beaten_by_as_much() -> None:
    assert plan(score=-0.04).min_gain == pytest.approx(0.04)
    assert plan(score=0.3).min_gain == 0.0


def test_the_third_candidate_needs_a_sixth_of_the_errors_and_rolls_back_as_the_first() -> None:
    third = limit_plan(FLEET_S, nth=3, since_base=Change())

    assert third.promote_at == pytest.approx(120)
    assert third.roll_back_at == 25
    assert third.threshold == third.promote_at


def test_all_turns_of_a_watch_together_have_the_rate_of_one_test() -> None:
    parts = [watch_plan("w", FLEET_S, share=0.05, nth=nth).alpha for nth in range(1, 1000)]

    assert (parts[0], 0.0499 < sum(parts) < 0.05) == (0.025, True)


@given(st.floats(0.001, 0.499))
def test_a_watch_holds_back_twice_its_share_at_first(share: float) -> None:
    shares = [1.0 - step.share for step in watch_plan("w", FLEET_S, share=share, nth=1).ramp]

    assert shares == pytest.approx([min(2 * share, 0.5), share])


def test_a_watch_never_promotes_and_has_the_limits_for_tolerances_beside_the_base() -> None:
    beside_base = watch_plan("w", FLEET_S, share=0.05, nth=2, against_base=True)
    beside_previous = watch_plan("w", FLEET_S, share=0.05, nth=1)

    assert beside_base.kind == "watch"
    assert (beside_previous.roll_back_at, beside_base.roll_back_at) == (50, pytest.approx(150))
    assert beside_base.length_tolerance == pytest.approx(loss_of(LIMITS.length))
    assert beside_base.success_tolerance == LIMITS.success
    assert beside_previous.success_tolerance == FLEET_S.success_tolerance


def test_a_fleet_without_limits_in_its_plan_experiments_as_before() -> None:
    old = FLEET_S.model_copy(update={"limits": None})

    assert limit_plan(old, nth=5, since_base=Change(length=9.0)) == old
    evidence = Experiment(old).evidence
    assert (evidence.kept, evidence.change, evidence.harm_refused) == (None, None, None)


def test_a_candidate_that_the_replay_proved_better_begins_at_the_top_of_the_ramp() -> None:
    fleet_s = limit_plan(FLEET_S, nth=3, since_base=Change())

    better = after_replay(fleet_s, ReplayedEvidence(prompts=90, score=25.0, success=3.0), 20.0)
    unproved = after_replay(fleet_s, ReplayedEvidence(prompts=128, score=5.0), 20.0)

    assert [step.share for step in better.ramp] == [0.5]
    assert better.replayed is not None
    assert unproved.ramp == after_replay(fleet_s, None, 20.0).ramp == fleet_s.ramp
