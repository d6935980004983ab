"""What users are served, judged once more: what waits for it, what counts without it, and what it can stop."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.experiments.experiment import Experiment
from ratchet.experiments.unit import NOT_AUDITED, Audit, Enrolment, Outcome
from schemas.records.evidence import AuditRule, ExperimentPlan, ReplayedEvidence, ServedRule, Verdict
from tests.ratchet.experiments.making_experiments import HALF, LEVELS, Traffic, enrolment, plan

ALL = ServedRule(share=1.0)
AUDITED = AuditRule(share=1.0, margin=0.3)
CHOSEN = Outcome(succeeded=True, score=0.5, served=0.8, is_choice=True)
ALONE = Outcome(succeeded=True, score=0.5, served=0.5)
FAILED = Outcome(succeeded=False, answered=False)


def served_plan(**changed: object) -> ExperimentPlan:
    return plan(ramp=HALF, served=ALL, by_intention=True, **changed)


def judged(served: float | None, judge: str = "verifier@1") -> Audit:
    return Audit(known=0.5, scored=1.0, auditors=(judge,), served=served)


def tried(
    asked: ExperimentPlan, *, single: float, served: float, units: int = 1500, silent: bool = False
) -> Experiment:
    """The first verdicts see the candidate's effect as `single`, the second ones as `served`."""
    experiment, rng = Experiment(asked), random.Random(5)
    traffic = Traffic(effect=single, is_choice=True)
    for index in range(units):
        unit_id = f"task-{index}"
        if (arm := experiment.arm_for(unit_id, in_session=False)) is None:
            break
        experiment.enrol(Enrolment(index, unit_id, False, arm, f"type-{index % 4}", float(index)))
        experiment.observe(index, traffic.outcome(index, is_candidate=arm.is_candidate))
        score = min(1.0, max(0.0, rng.gauss(LEVELS[index % 4] + served * arm.is_candidate, 0.12)))
        experiment.audit(index, NOT_AUDITED if silent else judged(score))
    return experiment


def one_unit(outcome: Outcome, audit: Audit | None = None, asked: ExperimentPlan | None = None) -> Experiment:
    experiment = Experiment(asked or served_plan())
    experiment.enrol(enrolment(0))
    experiment.observe(0, outcome)
    if audit is not None:
        experiment.audit(0, audit)
    return experiment


def test_a_unit_waits_for_the_second_verdict_on_an_answer_that_was_chosen_among_several() -> None:
    assert one_unit(CHOSEN).awaited_audits == {0}
    assert one_unit(CHOSEN).evidence.served_units == 0
    assert one_unit(CHOSEN, judged(0.5)).evidence.served_units == 1


@pytest.mark.parametrize("outcome", [ALONE, FAILED])
def test_an_answer_that_nobody_chose_and_a_task_without_one_need_no_second_verdict(outcome: Outcome) -> None:
    assert one_unit(outcome).evidence.served_units == 1


def test_a_single_answer_counts_with_its_first_score_and_a_task_that_failed_counts_zero() -> None:
    """So it is in either arm: what the user got is known."""
    by_first = one_unit(ALONE).evidence.gain_served
    assert by_first == one_unit(CHOSEN, judged(0.5)).evidence.gain_served
    assert one_unit(FAILED).evidence.gain_served == one_unit(CHOSEN, judged(0.0)).evidence.gain_served != by_first


def test_a_candidate_better_in_single_answers_that_serves_users_worse_is_not_promoted() -> None:
    without = tried(plan(ramp=HALF, by_intention=True), single=0.05, served=-0.05)
    with_it = tried(served_plan(), single=0.05, served=-0.02)

    assert without.decision.verdict is Verdict.PROMOTE
    assert with_it.decision.verdict is Verdict.CONTINUE
    assert "no loss in what users are served" in with_it.decision.reason


def test_what_is_proved_harmful_to_users_is_rolled_back_by_that() -> None:
    decision = tried(served_plan(), single=0.05, served=-0.05).decision

    assert decision.verdict is Verdict.ROLL_BACK
    assert "what users are served" in decision.reason


def test_a_candidate_that_serves_users_better_is_promoted_and_the_reason_says_so() -> None:
    decision = tried(served_plan(), single=0.1, served=0.1).decision

    assert decision.verdict is Verdict.PROMOTE
    assert "no loss in what users are served" in decision.reason
    assert decision.evidence.served_effect == pytest.approx(0.1, abs=0.05)


def test_second_verdicts_that_never_come_promote_nothing_and_accuse_nobody() -> None:
    decision = tried(served_plan(), single=0.1, served=0.1, silent=True).decision

    assert decision.verdict is Verdict.CONTINUE
    assert "no loss in what users are served" in decision.reason
    assert decision.evidence.harm_served is not None
    assert decision.evidence.harm_served <= 1.0


def test_on_served_the_gain_must_be_there_in_the_second_verdicts() -> None:
    """The first ones, which chose the answers, say +0.1."""
    flattered = tried(served_plan(metric="served"), single=0.1, served=0.0)
    proved = tried(served_plan(metric="served"), single=0.1, served=0.1)

    assert flattered.decision.verdict is Verdict.CONTINUE
    assert proved.decision.verdict is Verdict.PROMOTE


def test_with_an_auditor_its_score_of_the_served_answer_is_the_second_verdict() -> None:
    asked = served_plan(audit=AUDITED)

    assert one_unit(ALONE, asked=asked).awaited_audits == {0}
    assert one_unit(CHOSEN, judged(0.2), asked).evidence.gain_served == pytest.approx(
        one_unit(CHOSEN, judged(0.2)).evidence.gain_served
    )
    assert tried(asked, single=0.1, served=-0.1).decision.verdict is not Verdict.PROMOTE


def test_a_second_verdict_by_another_scorer_ends_the_experiment_without_a_winner() -> None:
    decision = one_unit(replace(CHOSEN, scorer="verifier@1"), judged(0.5, "verifier@2")).decision

    assert decision.verdict is Verdict.ABORT
    assert "the scorer changed from verifier@1 to verifier@2" in decision.reason


def test_what_the_shadow_replay_proved_of_it_counts() -> None:
    alone = one_unit(CHOSEN, judged(0.5)).evidence.gain_served
    both = one_unit(CHOSEN, judged(0.5), served_plan(replayed=ReplayedEvidence(prompts=9, served=9.0))).evidence

    assert alone is not None
    assert both.gain_served == pytest.approx(5.0 * alone)


def test_a_plan_without_the_rule_counts_as_before() -> None:
    older = ExperimentPlan.model_validate_json(plan(ramp=HALF).model_dump_json(exclude={"served"}))
    experiment = tried(older, single=0.1, served=-0.1)

    assert older.served is None
    assert experiment.evidence.gain_served is None
    assert experiment.evidence.served_units is None
    assert experiment.decision.verdict is Verdict.PROMOTE


@settings(max_examples=20)
@given(order=st.permutations([(kind, sequence) for kind in ("end", "audit") for sequence in range(6)]))
def test_whatever_the_order_of_ends_and_second_verdicts_the_evidence_is_the_same(order: list[tuple[str, int]]) -> None:
    def fed(events: list[tuple[str, int]]) -> Experiment:
        experiment, traffic = Experiment(served_plan()), Traffic(is_choice=True)
        outcomes = [traffic.outcome(sequence, is_candidate=sequence % 2 > 0) for sequence in range(6)]
        for sequence in range(6):
            experiment.enrol(enrolment(sequence, is_candidate=sequence % 2 > 0))
        for kind, sequence in events:
            if kind == "end":
                experiment.observe(sequence, outcomes[sequence])
            else:
                experiment.audit(sequence, judged(sequence / 6))
        return experiment

    assert fed(order).decision == fed(sorted(order)).decision
