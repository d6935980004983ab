"""What an answer took, as a part of its score: bounded, the fewer the better, and worth nothing to what is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.service.errors import ScorerError
from schemas.messages.response import Sample, Usage
from schemas.messages.reward import SampleScore
from services.scorer.settings import ScorerSettings
from services.scorer.spec import parse_spec
from services.scorer.strategies.efficiency import Time, Tokens
from services.scorer.strategies.installed import DecidedFirst, Weighted, build_strategy
from services.scorer.strategies.strategy import Answer, ScoringRequest, Spent, Strategy
from services.scorer.worker import spent_on
from tests.services.scorer.scripted import Scripted

SETTINGS = ScorerSettings()
SPEC = "0.9*tests + 0.1*tokens:4000"


def request_of(*spent: Spent, fresh: bool = False) -> ScoringRequest:
    return ScoringRequest("t-1", "Mend it.", tuple(Answer("done", spent=one) for one in spent), fresh=fresh)


async def by_sum(tests: float, tokens: int, spec: str = SPEC) -> SampleScore:
    """Of an answer that passes such a share of its tests after so many tokens."""
    parts: list[Strategy] = [Scripted([SampleScore(score=tests)]), Tokens.build("4000", SETTINGS)]
    (score,) = await Weighted(parse_spec(spec), parts).score(request_of(Spent(tokens)))
    return score


@pytest.mark.parametrize(("tokens", "score"), [(0, 1.0), (1000, 0.8), (4000, 0.5), (12_000, 0.25), (10**9, 4e-6)])
async def test_half_is_earned_at_the_number_that_was_named(tokens: int, score: float) -> None:
    (found,) = await Tokens.build("4000", SETTINGS).score(request_of(Spent(tokens)))

    assert found.score == pytest.approx(score, rel=1e-3)
    assert found.reason == f"{tokens:,.6g} tokens"


async def test_time_is_a_programs_seconds_and_what_nobody_told_is_not_guessed() -> None:
    found = await Time.build("60", SETTINGS).score(request_of(Spent(120, seconds=20.0), Spent(120)))

    assert [(one.score, one.status) for one in found] == [(0.75, "ok"), (None, "unscorable")]
    assert found[1].reason == "nobody said how many seconds it took"


async def test_an_anchor_that_is_scored_again_is_judged_as_it_was() -> None:
    (found,) = await Tokens.build("4000", SETTINGS).score(request_of(Spent(), fresh=True))

    assert found.score == 1.0


@pytest.mark.parametrize("argument", ["", "many", "0", "-1", "nan", "inf"])
def test_the_number_must_be_one(argument: str) -> None:
    with pytest.raises(ScorerError, match="needs the tokens that earn a half"):
        Tokens.build(argument, SETTINGS)


async def test_what_is_right_earns_for_being_cheap_and_what_fails_nothing() -> None:
    cheap, dear, wrong, half = (
        await by_sum(1.0, 0),
        await by_sum(1.0, 12_000),
        await by_sum(0.0, 0),
        await by_sum(0.5, 4000),
    )

    assert (cheap.score, dear.score, wrong.score) == (1.0, pytest.approx(0.925), 0.0)
    assert half.score == pytest.approx(0.5 * (0.9 + 0.1 * 0.5))
    assert half.parts == {"tests": 0.5, "tokens:4000": 0.5}
    assert half.reason == "tests 0.5; tokens:4000 0.5"


SHARES, TOKENS = st.floats(0, 1), st.integers(0, 10**6)


@given(SHARES, TOKENS, SHARES, TOKENS)
async def test_cost_never_makes_up_for_more_than_its_weight(one: float, tokens: int, other: float, fewer: int) -> None:
    first, second = (await by_sum(one, tokens)).score, (await by_sum(other, fewer)).score

    assert first is not None and second is not None
    assert 0.0 <= first <= one + 1e-12
    if one * 0.9 > other:  # better by more than the tenth that cost weighs
        assert first > second


async def test_behind_and_only_what_passed_is_looked_at() -> None:
    spec = parse_spec("tests and tokens:4000")
    tests = Scripted([SampleScore(score=1.0), SampleScore(score=0.0)])
    made = DecidedFirst(spec, tests, Tokens.build("4000", SETTINGS))

    found = await made.score(request_of(Spent(4000), Spent(0)))

    assert [one.score for one in found] == [0.5, 0.0]
    assert found[0].parts == {"tests": 1.0, "tokens:4000": 0.5}


def test_what_a_sample_says_of_itself_is_what_is_scored() -> None:
    rollout = Sample(text="done", usage=Usage(calls=3, sampled_tokens=120, seconds=4.5))
    answer = Sample(text="done", completion_ids=(1, 2, 3), logprobs=(-1.0, -1.0, -1.0))

    assert [spent_on(one) for one in (rollout, answer, Sample(text="done"))] == [Spent(120, 4.5), Spent(3), Spent()]
    assert Answer("a", spent=Spent(1)) == Answer("a", spent=Spent(2))  # judged once


def test_they_are_found_by_name() -> None:
    made = build_strategy(ScorerSettings(scorer="0.9*verifier:exact + 0.05*tokens:4000 + 0.05*time:60"))

    assert made.identity.id == "0.9*verifier:exact + 0.05*tokens:4000 + 0.05*time:60"
