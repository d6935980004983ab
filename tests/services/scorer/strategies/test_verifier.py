from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.service.errors import ScorerError
from schemas.messages.reward import SampleScore
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.strategy import Answer, ScoringRequest
from services.scorer.strategies.verifier import Verifier

MODES = ("exact", "normalised", "numeric", "regex", "graded", "json")
BY_REFERENCE_ALONE = MODES[:-1]


def verifier(mode: str) -> Verifier:
    return Verifier.build(mode, ScorerSettings())


def request(*answers: str, reference: str | None) -> ScoringRequest:
    return ScoringRequest("t-1", "What?", tuple(Answer(text) for text in answers), reference=reference)


@pytest.mark.parametrize(
    ("mode", "answers", "reference", "scores"),
    [
        ("exact", ["Paris", "paris"], "Paris", [1.0, 0.0]),
        ("normalised", ["Paris.", "Rome"], "paris", [1.0, 0.0]),
        ("", ["Paris."], "paris", [1.0]),
        ("numeric", ["It is 1,000.0", "999", "none"], "1000", [1.0, 0.0, 0.0]),
        ("regex", ["abc-12", "abc"], r"\d+$", [1.0, 0.0]),
        ("graded", ["big red dog", "red"], "red dog", [0.8, 2 / 3]),
        ("json", ['{"a": 1}', '{"a": 1, "b": 2}', "one"], '{"a": 1}', [1.0, 0.5, 0.0]),
    ],
)
async def test_each_mode_scores_every_answer(
    mode: str, answers: list[str], reference: str, scores: list[float]
) -> None:
    given_scores = await verifier(mode).score(request(*answers, reference=reference))
    assert [score.score for score in given_scores] == pytest.approx(scores)


@pytest.mark.parametrize("mode", BY_REFERENCE_ALONE)
async def test_without_a_reference_nothing_is_scored_and_nothing_is_zero(mode: str) -> None:
    scores = await verifier(mode).score(request("a", "b", reference=None))
    assert (
        scores
        == [SampleScore(score=None, status="unscorable", reason="the task has no reference to verify against")] * 2
    )


@pytest.mark.parametrize(
    ("mode", "reference", "reason"),
    [
        ("numeric", "no number here", "holds no number"),
        ("regex", "(", "no RE2 pattern"),
        ("json", "{", "can't be compared as JSON"),
    ],
)
async def test_a_reference_that_can_not_be_read_is_unscorable(mode: str, reference: str, reason: str) -> None:
    (score,) = await verifier(mode).score(request("1", reference=reference))
    assert (score.score, score.status) == (None, "unscorable")
    assert reason in (score.reason or "")


async def test_json_goes_by_a_schema_where_there_is_no_reference_and_says_why() -> None:
    schema = '{"type": "object", "required": ["a"]}'
    asked = ScoringRequest("t-1", "What?", (Answer('{"a": 1}'), Answer("{}")), criteria=schema)
    right, wrong = await verifier("json").score(asked)
    assert (right.score, wrong.score) == (1.0, 0.0)
    assert '"a" is a required property' in (wrong.reason or "")


async def test_json_without_reference_and_schema_is_unscorable() -> None:
    (score,) = await verifier("json").score(request("{}", reference=None))
    assert (score.score, score.status) == (None, "unscorable")


def test_an_unknown_mode_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ScorerError, match="no verifier 'vibes': choose verifier:exact"):
        verifier("vibes")


def test_the_identity_names_mode_and_whatever_changes_scores() -> None:
    assert verifier("exact").identity.id == "verifier:exact"
    loose = Verifier.build("numeric", ScorerSettings(scorer_numeric_relative_tolerance=0.1))
    assert loose.identity.revision != verifier("numeric").identity.revision


async def test_long_texts_are_compared_too() -> None:
    long = "word " * 20_000
    assert (await verifier("normalised").score(request(long, reference=long)))[0].score == 1.0


@given(
    mode=st.sampled_from(MODES),
    answers=st.lists(st.text(max_size=40) | st.text("0123456789.,/%-e ", max_size=20), min_size=1, max_size=3),
    reference=st.text(max_size=40) | st.text("0123456789.,/%-e ", max_size=20),
)
async def test_any_text_gets_a_score_or_a_null_with_a_reason(mode: str, answers: list[str], reference: str) -> None:
    scores = await verifier(mode).score(request(*answers, reference=reference))
    assert len(scores) == len(answers)
    for score in scores:
        assert score.status == "ok" or (score.score is None and score.reason)
