"""An experiment from its first unit to its latched verdict."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.experiments.experiment import Experiment
from ratchet.experiments.lifetime import watch_plan
from ratchet.experiments.promotion_rule import judge
from ratchet.experiments.unit import Enrolment, Outcome
from schemas.records.evidence import ExperimentDecision, RampStep, Verdict
from tests.quick import rounds
from tests.ratchet.experiments.making_experiments import HALF, Traffic, enrolment, plan, run

GOOD = Outcome(succeeded=True, score=0.9, length=50.0, latency_s=1.0, scorer="verifier@1")


def test_a_better_candidate_is_promoted_on_proof_after_the_whole_ramp() -> None:
    experiment = run(Experiment(plan()), Traffic(effect=0.1), 1000)

    decision = experiment.decision
    assert decision.verdict is Verdict.PROMOTE
    assert decision.evidence.gain_score >= 20
    assert decision.evidence.gain_success >= 20
    assert decision.evidence.share == 0.5
    assert decision.band.low >= 0.0


def test_a_disaster_is_stopped_after_few_of_its_responses() -> None:
    experiment = run(Experiment(plan()), Traffic(effect=-0.2), 1500)

    assert experiment.decision.verdict is Verdict.ROLL_BACK
    assert experiment.decision.evidence.candidate.units <= 25


def test_an_equal_candidate_spends_the_budget() -> None:
    experiment = run(Experiment(plan(max_units=400)), Traffic(), 1000)

    assert experiment.decision.verdict is Verdict.INCONCLUSIVE
    assert experiment.decision.evidence.units == 400
    assert experiment.arm_for("another", in_session=False) is None


@pytest.mark.parametrize(
    "traffic",
    [Traffic(candidate_failures=0.4), Traffic(candidate_length=200.0), Traffic(candidate_latency_s=4.0)],
    ids=["success", "length", "latency"],
)
def test_harm_in_any_metric_rolls_back(traffic: Traffic, request: pytest.FixtureRequest) -> None:
    experiment = run(Experiment(plan(ramp=HALF)), traffic, 1000)

    assert experiment.decision.verdict is Verdict.ROLL_BACK
    assert f"most of all in {request.node.callspec.id}" in experiment.decision.reason


@pytest.mark.parametrize(
    "traffic",
    [Traffic(), Traffic(effect=0.1), Traffic(effect=-0.2), Traffic(candidate_failures=0.4), Traffic(length=5.0)],
    ids=["equal", "better", "worse", "failing", "longer"],
)
@pytest.mark.parametrize("kind", ["canary", "watch"])
def test_it_ends_at_the_unit_at_which_the_rule_says_so(traffic: Traffic, kind: str) -> None:
    """The rule is asked only where a few e-values say that it may end the experiment."""
    experiment = Experiment(plan(kind=kind, max_units=300, ramp=HALF))

    for index in range(300):
        run(experiment, traffic, 1, start=index)
        assert judge(experiment.plan, experiment.evidence)[0].final is (experiment.final is not None)

    assert experiment.final is not None


def test_better_scores_do_not_buy_lost_answers() -> None:
    experiment = run(Experiment(plan(ramp=HALF)), Traffic(effect=0.15, candidate_failures=0.1), 1500)

    assert experiment.decision.verdict is Verdict.ROLL_BACK


def test_a_watch_is_stable_or_rolls_the_new_primary_back() -> None:
    watch = watch_plan("watch", plan(max_units=600), share=0.05, nth=1)

    fine = run(Experiment(watch), Traffic(effect=0.05), 1000)
    worse = run(Experiment(watch), Traffic(effect=-0.2), 1000)

    assert (fine.decision.verdict, fine.share) == (Verdict.STABLE, 0.95)
    assert (worse.decision.verdict, worse.share) == (Verdict.ROLL_BACK, 0.9)


def test_a_changed_scorer_aborts() -> None:
    experiment = run(Experiment(plan()), Traffic(scorer="judge@1"), 30)

    run(experiment, Traffic(scorer="judge@2"), 1, start=30)

    assert experiment.decision.verdict is Verdict.ABORT
    assert "judge@1" in experiment.decision.reason
    assert "judge@2" in experiment.decision.reason


def test_arms_that_are_not_as_logged_abort() -> None:
    experiment = Experiment(plan(ramp=HALF))

    for sequence in range(200):
        experiment.enrol(enrolment(sequence, is_candidate=sequence % 5 == 0))
        experiment.observe(sequence, GOOD)

    assert experiment.decision.verdict is Verdict.ABORT
    assert "logged shares" in experiment.decision.reason


def test_a_verdict_is_given_once_and_never_changes() -> None:
    experiment = run(Experiment(plan(ramp=HALF, max_units=50)), Traffic(), 49)
    experiment.enrol(enrolment(49))

    verdict = experiment.observe(49, GOOD)
    after = experiment.observe(49, GOOD), experiment.enrol(enrolment(50)), experiment.observe(50, Outcome(False))

    assert verdict is not None
    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert after == (None, None, None)
    assert experiment.decision is verdict
    assert experiment.advance(1e9) is None


def test_the_ramp_goes_up_on_evidence_only() -> None:
    experiment = Experiment(plan())
    seen = [experiment.share]

    for index in range(400):
        run(experiment, Traffic(effect=0.05, seed=index), 1, start=index)
        if experiment.share != seen[-1]:
            seen.append(experiment.share)

    assert seen == [0.05, 0.25, 0.5]


def test_the_ramp_waits_while_harm_is_suspected() -> None:
    steps = (
        RampStep(share=0.5, candidate_units=5, open_candidates=100),
        RampStep(share=0.6, candidate_units=5, open_candidates=100),
    )

    waiting = run(Experiment(plan(ramp=steps, hold_ramp_at=0.01)), Traffic(), 60)
    going = run(Experiment(plan(ramp=steps)), Traffic(), 60)

    assert waiting.share == 0.5
    assert going.share == 0.6


def test_a_flood_gives_the_candidate_no_more_than_its_step_allows() -> None:
    experiment = Experiment(plan(ramp=(RampStep(share=0.5, candidate_units=5, open_candidates=7),)))

    candidates = 0
    for sequence in range(1000):
        assignment = experiment.arm_for(f"task-{sequence}", in_session=False)
        if assignment is not None:
            candidates += assignment.is_candidate
            experiment.enrol(enrolment(sequence, unit_id=f"task-{sequence}", assignment=assignment))

    assert candidates == 7


def test_a_session_keeps_its_arm_over_the_ramp_and_beyond_the_limits() -> None:
    experiment = Experiment(plan(max_units=40))
    arms = {}
    for sequence in range(40):
        unit = f"session-{sequence}"
        arms[unit] = experiment.arm_for(unit, in_session=True)
        experiment.enrol(enrolment(sequence, unit_id=unit, in_session=True, assignment=arms[unit]))

    assert {unit: experiment.arm_for(unit, in_session=True) for unit in arms} == arms
    assert experiment.arm_for("session-new", in_session=True) is None


def test_idle_sessions_are_counted_when_time_goes_on() -> None:
    experiment = Experiment(plan(session_window_s=60.0))
    experiment.enrol(enrolment(0, unit_id="anna", in_session=True, at=1000.0))
    experiment.observe(0, GOOD)
    before = experiment.evidence.units

    experiment.advance(1060.0)

    assert before == 0
    assert experiment.evidence.units == 1


def test_a_decision_is_json_and_back() -> None:
    decision = run(Experiment(plan()), Traffic(effect=-0.2), 1500).decision

    assert ExperimentDecision.model_validate_json(decision.model_dump_json()) == decision


def test_history_is_bounded_and_ends_with_the_present() -> None:
    experiment = run(Experiment(plan(ramp=HALF)), Traffic(), 1500)

    history = experiment.history
    assert 200 <= len(history) <= 400
    assert [point.units for point in history] == sorted(point.units for point in history)
    assert history[-1].units > 1490
    assert history[-1].band.low <= history[-1].band.effect <= history[-1].band.high


Log = tuple[list[Enrolment], list[tuple[int, Outcome]]]


def logged(effect: float, units: int, seed: int) -> Log:
    """What the two logs hold of an experiment: tasks and sessions, some lost."""
    rng, traffic = random.Random(seed), Traffic(effect=effect, seed=seed, failures=0.05)
    live = Experiment(plan(experiment_id=f"experiment-{seed}", ramp=HALF, session_tasks=3, session_window_s=20.0))
    enrolments, outcomes = [], []
    for sequence in range(units):
        in_session = rng.random() < 0.5
        unit_id = f"session-{rng.randrange(30)}" if in_session else f"task-{sequence}"
        assignment = live.arm_for(unit_id, in_session=in_session)
        assert assignment is not None
        one = Enrolment(sequence, unit_id, in_session, assignment, f"type-{sequence % 4}", sequence * 1.0)
        live.enrol(one)
        enrolments.append(one)
        outcomes.append((sequence, traffic.outcome(sequence, is_candidate=assignment.is_candidate)))
    return enrolments, outcomes


def judged(log: Log, arrival: list[tuple[int, Outcome]], *, late: int, seed: int) -> Experiment:
    """Fed as a live fleet is: assignments in order, outcomes as they arrive, each after its assignment."""
    experiment = Experiment(plan(experiment_id=f"experiment-{seed}", ramp=HALF, session_tasks=3, session_window_s=20.0))
    waiting = list(arrival)
    for one in log[0]:
        experiment.enrol(one)
        for outcome in [outcome for outcome in waiting if outcome[0] <= one.sequence - late]:
            experiment.observe(*outcome)
            waiting.remove(outcome)
    for sequence, outcome in waiting:
        experiment.observe(sequence, outcome)
    experiment.advance(1e9)
    return experiment


@settings(max_examples=rounds(15))
@given(st.data())
def test_the_order_of_arrival_changes_nothing(data: st.DataObject) -> None:
    effect, seed = data.draw(st.sampled_from([0.0, 0.25, -0.3])), data.draw(st.integers(0, 1000))
    log = logged(effect, 90, seed)

    in_order = judged(log, log[1], late=0, seed=seed)
    shuffled = judged(log, data.draw(st.permutations(log[1])), late=data.draw(st.integers(0, 90)), seed=seed)

    assert shuffled.decision == in_order.decision
    assert shuffled.evidence == in_order.evidence
    assert shuffled.history == in_order.history


def test_what_a_repetition_says_is_ignored() -> None:
    log = logged(0.2, 90, 3)
    twice = [(sequence, replace(outcome, score=0.0)) for sequence, outcome in log[1]]

    once = judged(log, log[1], late=0, seed=3)
    again = judged(log, log[1] + twice, late=0, seed=3)

    assert again.decision == once.decision
