"""A budget that would be spent before the minimum age lasts until then, once all else is proved."""

from __future__ import annotations

import pytest

from ratchet.experiments.experiment import Experiment, Pace
from ratchet.experiments.unit import Enrolment, Outcome
from schemas.records.evidence import ExperimentPlan, Verdict
from tests.ratchet.experiments.making_experiments import HALF, Traffic, enrolment, plan

START = 1_900_000_000.0
PLAN = plan(ramp=HALF, max_units=1000, min_age_s=5000.0)
"""Units of a fleet with one task a second: without a pace the budget is spent at a fifth of the age."""


class Fleet:
    """One task a second, each answered before the next is admitted."""

    def __init__(self, by: ExperimentPlan = PLAN) -> None:
        self.experiment = Experiment(by)
        self.enrolments: list[Enrolment] = []
        self.outcomes: list[tuple[int, Outcome]] = []

    def run(self, traffic: Traffic, first: int, last: int, *, clock: float = START) -> Fleet:
        """Admit the tasks from the first second to the last by this clock, or until there is a verdict."""
        for second in range(first, last):
            at = clock + second
            arm = self.experiment.arm_for(f"task-{second}", in_session=False, at=at)
            if self.experiment.final is not None:
                break
            if arm is not None:
                self.enrolments.append(Enrolment(second, f"task-{second}", False, arm, f"type-{second % 4}", at))
                self.outcomes.append((second, traffic.outcome(second, is_candidate=arm.is_candidate)))
                self.experiment.enrol(self.enrolments[-1])
                self.experiment.observe(*self.outcomes[-1])
        return self

    @property
    def verdict(self) -> Verdict:
        return self.experiment.decision.verdict


BETTER, WORSE, EQUAL = Traffic(effect=0.3), Traffic(effect=-0.6), Traffic()


@pytest.mark.parametrize(
    ("enrolled", "seconds", "allowed"),
    [
        (99, 0.0, True),
        (100, 0.0, False),
        (549, 500.0, True),
        (550, 500.0, False),
        (999, 999.9, True),
        (1000, 999.9, False),
        (1000, 1000.0, True),
        (1000, -1.0, True),
    ],
)
def test_nine_tenths_of_the_units_left_are_spread_over_the_time_left(
    enrolled: int, seconds: float, *, allowed: bool
) -> None:
    pace = Pace(units=100, max_units=1100, since=START, until=START + 1000.0)

    assert pace.allows(enrolled, START + seconds) is allowed


def test_a_busy_fleet_promotes_a_better_candidate_at_the_minimum_age() -> None:
    fleet = Fleet().run(BETTER, 0, 6000)

    evidence = fleet.experiment.decision.evidence
    assert fleet.verdict is Verdict.PROMOTE
    assert 5000 <= evidence.age_s < 5020
    assert evidence.units <= 1000


def test_the_evidence_is_spread_over_the_whole_age() -> None:
    fleet = Fleet().run(BETTER, 0, 6000)

    counts = [sum(START + part <= one.at < START + part + 1000 for one in fleet.enrolments) for part in (2000, 4000)]
    assert min(counts) >= 50


def test_nothing_proved_spends_the_budget_at_once() -> None:
    fleet = Fleet().run(EQUAL, 0, 6000)

    assert fleet.verdict is Verdict.INCONCLUSIVE
    assert fleet.experiment.decision.evidence.age_s == 999.0


def test_harm_that_comes_after_the_proof_rolls_back() -> None:
    fleet = Fleet().run(BETTER, 0, 1500)
    assert fleet.verdict is Verdict.CONTINUE

    fleet.run(WORSE, 1500, 6000)

    assert fleet.verdict is Verdict.ROLL_BACK
    assert fleet.experiment.decision.evidence.age_s < 5000


def test_the_pace_ends_with_the_proof() -> None:
    """Given a pace, when a task type comes that is not judged yet, then new units are admitted at once."""
    fleet = Fleet().run(BETTER, 0, 1500)
    experiment, now = fleet.experiment, fleet.enrolments[-1].at
    assert experiment.arm_for("new", in_session=False, at=now) is None

    for number in range(22):
        one = enrolment(2000 + number, is_candidate=number % 2 > 0, stratum="dates", at=now)
        experiment.enrol(one)
        experiment.observe(one.sequence, Outcome(True, score=0.5, length=50.0, latency_s=1.0, scorer="verifier@1"))

    assert experiment.evidence.awaited_type == "dates"
    assert experiment.arm_for("new", in_session=False, at=now) is not None


@pytest.mark.parametrize("back_s", [1000.0, 365 * 86_400.0])
def test_a_clock_that_is_set_back_does_not_hold_up_an_experiment(back_s: float) -> None:
    fleet = Fleet().run(BETTER, 0, 1500).run(BETTER, 1500, 9000, clock=START - back_s)

    assert fleet.experiment.final is not None


def test_the_logs_give_the_verdict_of_a_paced_experiment_again() -> None:
    fleet, again = Fleet().run(BETTER, 0, 6000), Experiment(PLAN)

    for one in fleet.enrolments:
        again.enrol(one)
    for sequence, outcome in fleet.outcomes:
        again.observe(sequence, outcome)

    assert again.decision == fleet.experiment.decision


def test_after_a_restart_the_pace_is_the_same() -> None:
    fleet, again = Fleet().run(BETTER, 0, 2500), Experiment(PLAN)

    for one in fleet.enrolments:
        again.enrol(one)
    for sequence, outcome in fleet.outcomes:
        again.observe(sequence, outcome)

    times = [START + second for second in range(2500, 2530)]
    admitted = [
        [one.arm_for("next", in_session=False, at=at) is not None for at in times] for one in (fleet.experiment, again)
    ]
    assert admitted[0] == admitted[1]
    assert set(admitted[0]) == {True, False}
