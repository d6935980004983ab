"""One kind of task that a candidate destroys stops it, and what is too rare to be judged is named."""

from __future__ import annotations

import random

from ratchet.experiments.experiment import Experiment
from ratchet.experiments.type_veto import TypeVeto, threshold_of
from ratchet.experiments.unit import Enrolment, Outcome
from schemas.records.evidence import ReplayedEvidence, Verdict
from tests.ratchet.experiments.making_experiments import HALF, plan


def judged(experiment: Experiment, effects: dict[str, float], shares: dict[str, float], units: int) -> Experiment:
    """The experiment after so many tasks of these types, each with its share of the traffic and its effect."""
    rng = random.Random(5)
    for index in range(units):
        kind = rng.choices(list(shares), list(shares.values()))[0]
        assignment = experiment.arm_for(f"task-{index}", in_session=False)
        if assignment is None:
            break
        score = min(1.0, max(0.0, rng.gauss(0.6 + effects[kind] * assignment.is_candidate, 0.12)))
        experiment.enrol(Enrolment(index, f"task-{index}", False, assignment, kind, float(index)))
        experiment.observe(index, Outcome(True, score, length=50.0, latency_s=1.0, refused=0.0))
    return experiment


def test_a_family_that_is_destroyed_stops_a_candidate_that_is_better_on_average() -> None:
    effects, shares = {"most": 0.1, "few": -0.6}, {"most": 0.9, "few": 0.1}

    decision = judged(Experiment(plan(ramp=HALF, min_units_per_arm=1000)), effects, shares, 1500).decision

    assert decision.verdict is Verdict.ROLL_BACK
    assert decision.reason.startswith("harm to tasks of the type 'few'")
    assert decision.evidence.harm < 20.0  # on average it is better


def test_a_common_type_must_have_been_seen_before_a_promotion() -> None:
    effects, shares = {"most": 0.3, "few": 0.3}, {"most": 0.93, "few": 0.07}
    seen = ReplayedEvidence(prompts=40, types={"most": 20, "few": 20})

    alone = judged(Experiment(plan(ramp=HALF)), effects, shares, 2000).decision
    replayed = judged(Experiment(plan(ramp=HALF, replayed=seen)), effects, shares, 2000).decision

    assert alone.verdict is replayed.verdict is Verdict.PROMOTE
    assert replayed.evidence.units < alone.evidence.units


def test_types_that_are_too_rare_are_named() -> None:
    effects, shares = {"most": 0.3, "rare": 0.3}, {"most": 0.99, "rare": 0.01}

    decision = judged(Experiment(plan(ramp=HALF)), effects, shares, 2000).decision

    assert decision.verdict is Verdict.PROMOTE
    assert decision.reason.endswith("too rare to be judged: type 'rare'")


def test_all_types_together_have_one_rate_of_error() -> None:
    veto = TypeVeto(tolerance=0.05, enough=12)
    for index in range(300):
        veto.observe(0.5, is_candidate=index % 2 == 0, share=0.5, stratum=f"type-{index}")

    parts = [kind.part for kind in veto._types.values()]

    alpha = 0.05
    assert sum(parts) / threshold_of(alpha) + 1.0 / threshold_of(alpha) < alpha
    assert len(parts) == 257  # the last is that of all others
    assert len(veto.rare) == 8
