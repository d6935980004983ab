"""What a shadow replay proves: harm in any of its metrics or types, a gain, what is kept, and what v1.0.0 is beside."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ratchet.experiments.shadow import LEAST_MEASURED, Pair, ShadowReplay, ShadowRule
from ratchet.experiments.unit import Outcome
from schemas.records.evidence import Limits

RULE = ShadowRule(
    limits=Limits(success=0.05, refused=0.05, length=1.3, latency=2.0),
    alpha=0.05,
    promote_at=20.0,
    success_margin=0.05,
    score_tolerance=0.01,
    success_tolerance=0.01,
    refused_tolerance=0.01,
    type_tolerance=0.05,
    types=("easy", "rare"),
)


def outcome(score: float | None = 0.6, *, scored: float = 1.0, length: float = 40.0, refused: float = 0.0) -> Outcome:
    return Outcome(succeeded=score is not None, score=score, scored=scored, length=length, refused=refused)


def pairs(count: int, ours: Outcome, other: Outcome, base: Outcome | None = None) -> Iterator[Pair]:
    """Scores with noise of ±0.1 around the given ones."""
    rng = random.Random(3)
    for _ in range(count):
        noisy = [
            one if one.score is None else Outcome(**{**fields(one), "score": one.score + rng.uniform(-0.1, 0.1)})
            for one in (ours, other)
        ]
        yield Pair("easy", noisy[0], noisy[1], base)


def fields(one: Outcome) -> dict[str, object]:
    return {name: getattr(one, name) for name in Outcome.__dataclass_fields__}


def replayed(count: int, ours: Outcome, other: Outcome, base: Outcome | None = None) -> ShadowReplay:
    replay = ShadowReplay(RULE)
    for pair in pairs(count, ours, other, base):
        if replay.is_over:
            break
        replay.observe(pair)
    return replay


@pytest.mark.parametrize(
    ("ours", "worst", "within"),
    [
        (outcome(0.4), "score", 40),
        (outcome(None), "success", 20),
        (outcome(scored=0.6), "success", 30),
        (outcome(length=160.0), "length", 60),
        (outcome(refused=0.5), "refusals", 40),
    ],
)
def test_proof_of_harm_names_what_is_worse(ours: Outcome, worst: str, within: int) -> None:
    replay = replayed(200, ours, outcome())

    assert replay.is_harmful and replay.prompts <= within
    assert replay.worst == worst


def test_an_equal_candidate_is_kept_within_the_limits_by_as_many_prompts_as_are_asked_by_default() -> None:
    replay = replayed(128, outcome(), outcome())

    assert not replay.is_harmful and replay.prompts == 128
    assert min(replay.kept.values()) >= 2.0 * RULE.promote_at
    assert replay.seen == {"easy": 128}


def test_a_better_candidate_is_asked_until_its_live_test_has_nothing_to_prove_but_the_gain() -> None:
    replay = replayed(400, outcome(0.9), outcome())

    assert replay.is_proved and replay.prompts < 160
    assert replay.gain >= 20.0


def test_what_the_primary_s_logged_answers_took_is_what_is_usual_in_the_live_test() -> None:
    replay = ShadowReplay(RULE)
    for number, pair in enumerate(pairs(20, outcome(), outcome())):
        other = replace(pair.other, latency_s=2.0 + number % 2)
        replay.observe(replace(pair, other=other, candidate=replace(pair.candidate, latency_s=90.0)))

    assert replay.replayed.usual_latency_s == pytest.approx(2.5)
    assert replayed(20, outcome(), outcome()).replayed.usual_latency_s is None


def test_a_destroyed_type_is_harm_though_all_others_gain() -> None:
    replay = ShadowReplay(RULE)
    for number, pair in enumerate(pairs(120, outcome(0.7), outcome())):
        replay.observe(pair)
        if number % 4 == 0:
            replay.observe(Pair("rare", outcome(0.0), outcome(), extra=True))
        if replay.is_harmful:
            break

    assert replay.is_harmful
    assert replay.worst == "score of the task type rare"


def test_prompts_for_a_type_alone_and_golden_tasks_say_nothing_of_what_is_kept() -> None:
    replay = ShadowReplay(RULE)
    for _ in range(50):
        replay.observe(Pair("rare", outcome(), outcome(), extra=True))
        replay.observe(Pair("easy", outcome(0.9), outcome(), is_traffic=False))

    assert replay.kept == {"success": 1.0, "bounds": 1.0, "length": 1.0, "refused": 1.0}
    assert replay.seen == {"rare": 50}
    assert replay.gain > 20.0


def test_answers_are_as_long_as_their_mean_up_to_a_clip_so_a_few_very_long_ones_count() -> None:
    """A twentieth of the answers × 20: the clipped mean is × 1.35, which the limit of 1.3 does not allow."""
    replay = ShadowReplay(RULE)
    for number in range(2000):
        replay.observe(Pair("easy", outcome(length=800.0 if number % 20 == 10 else 40.0), outcome()))

    assert replay.kept["length"] < 1.0


def test_limits_for_life_are_held_against_v1_0_0_itself() -> None:
    """× 1.05 of a primary that is × 1.29 already: within the limit of the one, beyond that of the other."""
    replay = replayed(1500, outcome(length=54.0), outcome(length=51.5), outcome(length=40.0))

    assert replay.kept["length"] < 1.0
    assert replay.since_base is not None
    assert replay.since_base.length == pytest.approx(51.5 / 40.0, rel=0.01)


def test_too_few_prompts_measure_nothing_since_v1_0_0() -> None:
    assert replayed(LEAST_MEASURED - 1, outcome(), outcome(), outcome()).since_base is None
    assert replayed(LEAST_MEASURED, outcome(), outcome(), outcome()).since_base is not None


def test_equal_candidates_are_refused_in_at_most_one_of_twenty() -> None:
    rng, refused = random.Random(11), 0
    for _ in range(200):
        replay = ShadowReplay(RULE)
        for _ in range(128):
            ours, other = (outcome(min(1.0, max(0.0, rng.gauss(0.6, 0.25)))) for _ in range(2))
            replay.observe(Pair("easy", ours, other))
            refused += replay.is_harmful
            if replay.is_over:
                break

    assert refused <= 10
