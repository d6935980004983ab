"""The auditor's word in an experiment: what is audited, what waits for it, and what it can stop."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.experiments.assignment import draw, is_audited
from ratchet.experiments.experiment import Experiment
from ratchet.experiments.unit import NOT_AUDITED, Audit, Enrolment, UnitLine
from schemas.records.evidence import AuditRule, ExperimentPlan, Verdict
from tests.ratchet.experiments.making_experiments import HALF, LEVELS, Traffic, enrolment, plan
from tests.ratchet.experiments.test_unit import GOOD, LOST, sequences

ALL = AuditRule(share=1.0)


def line() -> UnitLine:
    return UnitLine(session_tasks=3, session_window_s=100.0, is_audited=lambda unit_id: unit_id != "task-1")


def audit_of(score: float, auditor: str = "auditor@1") -> Audit:
    return Audit(known=score, scored=1.0, auditors=(auditor,))


def audited(
    asked: ExperimentPlan, *, judged: float, truth: float, units: int = 800, silent: bool = False
) -> Experiment:
    """The judge sees the candidate's effect as `judged`, the auditor as `truth`."""
    experiment, traffic, rng = Experiment(asked), Traffic(effect=judged), random.Random(3)
    for index in range(units):
        unit_id = f"task-{index}"
        if (arm := experiment.arm_for(unit_id, in_session=False)) is None:
            break
        experiment.enrol(Enrolment(index, unit_id, False, arm, f"type-{index % 4}", float(index)))
        experiment.observe(index, traffic.outcome(index, is_candidate=arm.is_candidate))
        score = min(1.0, max(0.0, rng.gauss(LEVELS[index % 4] + truth * arm.is_candidate, 0.12)))
        experiment.audit(index, NOT_AUDITED if silent else audit_of(score))
    return experiment


def test_an_audited_unit_waits_for_its_audit_and_holds_up_those_behind_it() -> None:
    units = line()
    for sequence in range(3):
        units.enrol(enrolment(sequence))
        units.observe(sequence, GOOD)

    before, awaited = sequences(units), units.awaited_audits
    units.audit(0, audit_of(0.5))
    between = sequences(units)
    units.audit(2, audit_of(0.5))

    assert (before, awaited) == ([], {0, 2})
    assert between == [0, 1]
    assert sequences(units) == [2]


def test_a_task_without_an_answer_needs_no_audit_and_counts_as_unscored() -> None:
    units = line()
    units.enrol(enrolment(0))
    units.observe(0, type(LOST)(succeeded=False, answered=False))

    (unit,) = units.finished_units()
    assert unit.audit is not None
    assert (unit.audit.known, unit.audit.scored, unit.audit.score) == (0.0, 0.0, None)


def test_the_first_audit_of_a_task_counts_and_foreign_ones_do_not() -> None:
    units = line()
    units.enrol(enrolment(0))
    units.audit(0, audit_of(0.5))
    units.audit(0, audit_of(1.0))
    units.audit(99, audit_of(1.0))
    units.observe(0, GOOD)

    (unit,) = units.finished_units()
    assert unit.audit == audit_of(0.5)


def test_what_only_the_judge_likes_is_promoted_without_an_auditor_and_rolled_back_with_one() -> None:
    alone = audited(plan(ramp=HALF), judged=0.1, truth=-0.1)
    both = audited(plan(ramp=HALF, audit=ALL), judged=0.1, truth=-0.1)

    assert alone.decision.verdict is Verdict.PROMOTE
    assert both.decision.verdict is Verdict.ROLL_BACK
    assert "the auditor's score" in both.decision.reason


def test_what_both_like_is_promoted_and_the_reason_says_so() -> None:
    decision = audited(plan(ramp=HALF, audit=ALL, by_intention=True), judged=0.1, truth=0.1).decision

    assert decision.verdict is Verdict.PROMOTE
    assert "no loss by the auditor" in decision.reason
    assert decision.evidence.audit_effect == pytest.approx(0.1, abs=0.05)


def test_an_auditor_that_is_away_promotes_nothing_and_accuses_nobody() -> None:
    decision = audited(plan(ramp=HALF, audit=ALL), judged=0.1, truth=0.1, silent=True).decision

    assert decision.verdict is Verdict.CONTINUE
    assert "no loss by the auditor" in decision.reason
    assert decision.evidence.harm_audit is not None
    assert decision.evidence.harm_audit <= 1.0


def test_an_auditor_alone_promotes_nothing() -> None:
    assert audited(plan(ramp=HALF, audit=ALL), judged=0.0, truth=0.2).decision.verdict is Verdict.CONTINUE


def test_another_auditor_ends_the_experiment_without_a_winner() -> None:
    experiment = Experiment(plan(ramp=HALF, audit=ALL))
    for sequence, auditor in enumerate(("one", "two")):
        experiment.enrol(enrolment(sequence))
        experiment.observe(sequence, GOOD)
        experiment.audit(sequence, audit_of(0.5, auditor))

    assert experiment.decision.verdict is Verdict.ABORT
    assert "the auditor changed from one to two" in experiment.decision.reason


def test_a_plan_without_an_auditor_knows_nothing_of_audits() -> None:
    older = ExperimentPlan.model_validate_json(plan(ramp=HALF).model_dump_json(exclude={"audit"}))
    experiment = audited(older, judged=0.1, truth=-0.1)

    assert older.audit is None
    assert experiment.evidence.gain_audit is None
    assert experiment.evidence.harm_audit is None


def test_which_units_are_audited_says_nothing_about_their_arm() -> None:
    ids = [f"task-{number}" for number in range(4000)]
    seen = [unit for unit in ids if is_audited("small-v1.0.1", unit, 0.25)]
    candidates = [unit for unit in seen if draw("small-v1.0.1", unit) < 0.5]

    assert len(seen) / len(ids) == pytest.approx(0.25, abs=0.03)
    assert len(candidates) / len(seen) == pytest.approx(0.5, abs=0.05)


@settings(max_examples=20)
@given(order=st.permutations([(kind, sequence) for kind in ("end", "audit") for sequence in range(6)]))
def test_whatever_the_order_of_ends_and_audits_the_evidence_is_the_same(order: list[tuple[str, int]]) -> None:
    def fed(events: list[tuple[str, int]]) -> Experiment:
        experiment, traffic = Experiment(plan(ramp=HALF, audit=ALL)), Traffic()
        outcomes = [traffic.outcome(sequence, is_candidate=sequence % 2 > 0) for sequence in range(6)]
        for sequence in range(6):
            experiment.enrol(enrolment(sequence, is_candidate=sequence % 2 > 0))
        for kind, sequence in events:
            if kind == "end":
                experiment.observe(sequence, outcomes[sequence])
            else:
                experiment.audit(sequence, audit_of(sequence / 6))
        return experiment

    assert fed(order).decision == fed(sorted(order)).decision
