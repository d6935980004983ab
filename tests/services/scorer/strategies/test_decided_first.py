from __future__ import annotations

import pytest

from schemas.messages.reward import SampleScore
from services.scorer.spec import parse_spec
from services.scorer.strategies.installed import DecidedFirst
from services.scorer.strategies.strategy import Answer, ScoringRequest
from tests.services.scorer.scripted import BROKEN, UNKNOWN, Scripted

WRONG, RIGHT, GOOD, FAIR = (SampleScore(score=score) for score in (0.0, 1.0, 0.8, 0.5))
REQUEST = ScoringRequest("t-1", "What?", (Answer("a"), Answer("b"), Answer("c"), Answer("d")))


@pytest.mark.parametrize(
    ("rule", "first", "asked", "scores"),
    [
        ("and", [WRONG, RIGHT, UNKNOWN, FAIR], "bd", [0.0, 0.8, None, 0.25]),
        ("else", [WRONG, UNKNOWN, BROKEN, UNKNOWN], "bd", [0.0, 0.8, None, 0.5]),
    ],
)
async def test_the_judge_is_asked_only_about_what_is_undecided(
    rule: str, first: list[SampleScore], asked: str, scores: list[float | None]
) -> None:
    judge = Scripted([GOOD, FAIR])
    both = DecidedFirst(parse_spec(f"verifier:exact {rule} judge"), Scripted(first), judge)

    given = await both.score(REQUEST)

    assert "".join(answer.text for answer in judge.requests[0].answers) == asked
    assert [score.score for score in given] == scores


async def test_where_all_is_decided_the_judge_is_not_asked() -> None:
    judge = Scripted([])
    both = DecidedFirst(parse_spec("verifier:exact and judge"), Scripted([WRONG] * 4), judge)

    assert await both.score(REQUEST) == [WRONG] * 4
    assert judge.requests == []


async def test_a_failure_of_the_judge_is_a_null_never_the_verifiers_score() -> None:
    both = DecidedFirst(parse_spec("verifier:exact and judge"), Scripted([RIGHT, WRONG]), Scripted([BROKEN]))
    assert await both.score(ScoringRequest("t", "?", REQUEST.answers[:2])) == [BROKEN, WRONG]


def test_the_rule_is_part_of_the_scorers_identity() -> None:
    one, other = (
        DecidedFirst(parse_spec(f"verifier:exact {rule} judge"), Scripted([]), Scripted([])).identity
        for rule in ("and", "else")
    )
    assert one.id == "verifier:exact and judge"
    assert (one.id, one.revision) != (other.id, other.revision)
