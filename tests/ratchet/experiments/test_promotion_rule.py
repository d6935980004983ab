"""The verdict as a table."""

from __future__ import annotations

import pytest

from ratchet.experiments.lifetime import watch_plan
from ratchet.experiments.promotion_rule import judge, lacks_only_age
from schemas.records.evidence import CANARY_RAMP, ArmSummary, Evidence, ExperimentPlan, Verdict
from services.orchestrator.settings import OrchestratorSettings
from tests.ratchet.experiments.making_experiments import plan

PROVED: dict[str, object] = {"gain_score": 20.0, "gain_success": 20.0, "step": len(CANARY_RAMP) - 1, "age_s": 60.0}


def evidence(*, candidates: int = 50, primaries: int = 50, **changed: object) -> Evidence:
    def arm(units: int) -> ArmSummary:
        return ArmSummary(units=units, score=0.5, success=1.0, length=50.0, latency_s=1.0)

    fields: dict[str, object] = {
        "units": candidates + primaries,
        "step": 0,
        "share": 0.5,
        "age_s": 0.0,
        "candidate": arm(candidates),
        "primary": arm(primaries),
        "gain_score": 1.0,
        "gain_success": 1.0,
        "harm": 1.0,
        "harm_score": 1.0,
        "harm_success": 1.0,
        "harm_length": 1.0,
        "harm_latency": 1.0,
        "sample_ratio": 1.0,
        "scorer": "verifier@1",
        "foreign_scorer": None,
    }
    return Evidence.model_validate(fields | changed)


CANARY = plan(max_units=1000, min_units_per_arm=20, min_age_s=60.0)
WATCH = watch_plan("small-v1.0.1-watch", CANARY, share=0.05, nth=1)

TABLE = [
    (CANARY, evidence(), Verdict.CONTINUE),
    (CANARY, evidence(**PROVED), Verdict.PROMOTE),
    (CANARY, evidence(**PROVED | {"gain_score": 19.9}), Verdict.CONTINUE),
    (CANARY, evidence(**PROVED | {"gain_success": 19.9}), Verdict.CONTINUE),
    (CANARY, evidence(**PROVED, gain_bounds=19.9), Verdict.CONTINUE),
    (CANARY, evidence(**PROVED, kept_length=19.9, kept_latency=20.0, kept_refused=20.0), Verdict.CONTINUE),
    (CANARY, evidence(**PROVED, kept_length=20.0, kept_latency=19.9, kept_refused=20.0), Verdict.CONTINUE),
    (CANARY, evidence(**PROVED, kept_length=20.0, kept_latency=20.0, kept_refused=19.9), Verdict.CONTINUE),
    (CANARY, evidence(**PROVED, kept_length=20.0, kept_latency=20.0, kept_refused=20.0), Verdict.PROMOTE),
    (CANARY, evidence(**PROVED | {"step": 1}), Verdict.CONTINUE),
    (CANARY, evidence(**PROVED | {"age_s": 59.9}), Verdict.CONTINUE),
    (CANARY, evidence(**PROVED, candidates=19), Verdict.CONTINUE),
    (CANARY, evidence(**PROVED, primaries=19), Verdict.CONTINUE),
    (CANARY, evidence(**PROVED, awaited_type="dates"), Verdict.CONTINUE),
    (CANARY, evidence(**PROVED, harm_type=1.19, worst_type="dates"), Verdict.PROMOTE),
    (CANARY, evidence(**PROVED, harm_type=1.2, worst_type="dates"), Verdict.CONTINUE),
    (CANARY, evidence(**PROVED, harm_type=20.0, worst_type="dates"), Verdict.ROLL_BACK),
    (CANARY, evidence(harm=19.9), Verdict.CONTINUE),
    (CANARY, evidence(harm=20.0), Verdict.ROLL_BACK),
    (CANARY, evidence(harm_length=1e6, harm=19.9), Verdict.CONTINUE),
    (CANARY, evidence(**PROVED, harm=20.0), Verdict.ROLL_BACK),
    (CANARY, evidence(sample_ratio=999.0), Verdict.CONTINUE),
    (CANARY, evidence(sample_ratio=1000.0), Verdict.ABORT),
    (CANARY, evidence(**PROVED, harm=1e6, sample_ratio=1e6), Verdict.ABORT),
    (CANARY, evidence(**PROVED, foreign_scorer="verifier@2"), Verdict.ABORT),
    (CANARY, evidence(candidates=500, primaries=500), Verdict.INCONCLUSIVE),
    (CANARY, evidence(**PROVED, candidates=500, primaries=500), Verdict.PROMOTE),
    (WATCH, evidence(**PROVED), Verdict.CONTINUE),
    (WATCH, evidence(harm=49.9), Verdict.CONTINUE),
    (WATCH, evidence(harm=50.0), Verdict.ROLL_BACK),
    (WATCH, evidence(**PROVED, candidates=950, primaries=50), Verdict.STABLE),
]


@pytest.mark.parametrize(("by", "given", "verdict"), TABLE)
def test_the_verdict_follows_from_the_evidence(by: ExperimentPlan, given: Evidence, verdict: Verdict) -> None:
    assert judge(by, given)[0] is verdict


@pytest.mark.parametrize(
    ("by", "given", "answer"),
    [
        (CANARY, evidence(**PROVED | {"age_s": 59.9}), True),
        (CANARY, evidence(**PROVED), False),
        (CANARY, evidence(**PROVED | {"age_s": 59.9, "step": 1}), False),
        (CANARY, evidence(**PROVED | {"age_s": 60.0, "step": 1}), False),
        (WATCH, evidence(**PROVED | {"age_s": 59.9}), False),
    ],
)
def test_only_the_age_is_missing_where_all_else_is_proved(by: ExperimentPlan, given: Evidence, *, answer: bool) -> None:
    assert lacks_only_age(by, given) is answer


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (evidence(), ["score e-value 1 of 20", "success e-value 1 of 20", "step 1 of 3", "0 of 60 seconds old"]),
        (evidence(harm=50.0, harm_success=90.0), ["most of all in success", "50 units of the candidate"]),
        (evidence(foreign_scorer="verifier@2"), ["verifier@1", "verifier@2", "new experiment"]),
        (evidence(sample_ratio=5e3, candidates=80, primaries=20), ["80 candidate", "20 primary"]),
        (evidence(candidates=900, primaries=100), ["whole budget", "still missing: score e-value"]),
    ],
)
def test_the_reason_names_the_numbers_and_what_is_missing(given: Evidence, words: list[str]) -> None:
    _, reason = judge(CANARY, given)

    assert [word for word in words if word not in reason] == []


def test_plans_from_before_the_limits_give_the_sentences_they_gave() -> None:
    """A replay compares them bit for bit."""
    first = "better in score: e-value 20; success kept: 20; "
    last = " at least 20 after 100 units, 50 of the candidate"

    assert judge(CANARY, evidence(**PROVED))[1] == f"{first}both{last}"
    assert judge(CANARY, evidence(**PROVED, gain_bounds=25.0))[1] == (
        f"{first}with missing scores at their worst: 25; all{last}"
    )
    assert judge(CANARY, evidence(gain_bounds=2.0))[1].startswith(
        "score e-value 1 of 20; success e-value 1 of 20; e-value with missing scores at their worst 2 of 20; ramp"
    )


def test_every_verdict_has_a_sentence() -> None:
    assert all(verdict.sentence.endswith(".") for verdict in Verdict)
    assert [verdict for verdict in Verdict if not verdict.final] == [Verdict.CONTINUE]


def test_a_ramp_that_does_not_go_up_is_refused() -> None:
    with pytest.raises(ValueError, match="must go up"):
        plan(ramp=tuple(reversed(CANARY_RAMP)))


def test_the_thresholds_follow_from_alpha_and_travel_with_the_plan() -> None:
    strict = plan(alpha=0.01)

    assert (strict.promote_at, strict.roll_back_at, strict.threshold) == (100.0, 100.0, 100.0)
    assert ExperimentPlan.model_validate_json(strict.model_dump_json()) == strict
    assert watch_plan("w", strict, share=0.05, nth=1).threshold == 250.0


def test_a_plan_from_before_alpha_was_a_setting_means_one_in_twenty() -> None:
    recorded = plan().model_dump(mode="json")
    del recorded["alpha"]

    assert ExperimentPlan.model_validate(recorded) == plan(alpha=0.05)
    assert (plan().promote_at, plan().roll_back_at) == (20.0, 20.0)


@pytest.mark.parametrize("alpha", [0, 1, -0.05])
def test_a_rate_that_is_none_is_refused_by_name(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha"):
        plan(alpha=alpha)


def test_the_fleet_decides_at_the_rate_it_is_set_to() -> None:
    canary = OrchestratorSettings.read(experiment_alpha=0.01, experiment_min_age_s=0.0).experiments.canary

    assert (canary.alpha, canary.threshold) == (0.01, 100.0)
    assert judge(canary, evidence(**PROVED | {"gain_score": 99.0, "gain_success": 200.0}))[0] is Verdict.CONTINUE
    assert judge(canary, evidence(**PROVED | {"gain_score": 100.0, "gain_success": 200.0}))[0] is Verdict.PROMOTE
    assert judge(canary, evidence(harm=124.9))[0] is Verdict.CONTINUE
    assert judge(canary, evidence(harm=125.0))[0] is Verdict.ROLL_BACK
