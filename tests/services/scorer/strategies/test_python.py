from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.bus.in_hand import NEVER, Stepwise
from ratchet.service.errors import ScorerError
from schemas.messages.task import ChatMessage
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.python import PythonFunction, as_score
from services.scorer.strategies.strategy import Answer, ScoringRequest
from tests.services.scorer import functions
from tests.waiting import until

REQUEST = ScoringRequest("t-1", "What?", (Answer("abc"), Answer("abcde")), reference="r", criteria="c")


def scorer(function: str, *, timeout_s: float = 5.0, concurrency: int = 4) -> PythonFunction:
    settings = ScorerSettings(scorer_python_timeout_s=timeout_s, scorer_python_concurrency=concurrency)
    return PythonFunction.build(f"tests.services.scorer.functions:{function}", settings)


@pytest.mark.parametrize("function", ["length", "length_async"])
async def test_every_answer_is_scored_by_the_function(function: str) -> None:
    assert [score.score for score in await scorer(function).score(REQUEST)] == [0.3, 0.5]


async def test_the_function_is_given_prompt_answer_reference_and_criteria() -> None:
    functions.calls.clear()
    chat = (ChatMessage(role="system", content="s"), ChatMessage(role="user", content="u"))
    await scorer("length").score(ScoringRequest("t-1", chat, (Answer("a"),)))
    await scorer("length").score(REQUEST)
    as_dicts = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    assert functions.calls[0] == (as_dicts, "a", None, None)
    assert sorted(functions.calls[1:]) == [("What?", "abc", "r", "c"), ("What?", "abcde", "r", "c")]


@pytest.mark.parametrize(
    ("function", "status", "reason"),
    [
        ("no_opinion", "unscorable", "gave no score"),
        ("raises", "infra_fail", "raised KeyError('oops')"),
        ("raises_async", "infra_fail", "raised KeyError('oops')"),
        ("raises_timeout", "infra_fail", "raised TimeoutError('its own')"),
        ("raises_timeout_async", "infra_fail", "raised TimeoutError('its own')"),
        ("stops_iterating", "infra_fail", "raised StopIteration()"),
        ("exits", "infra_fail", "raised SystemExit(3)"),
        ("not_a_number", "infra_fail", "gave nan"),
        ("too_large", "infra_fail", "gave 1.5, which is no number from 0 to 1"),
        ("text", "infra_fail", "gave '0.5'"),
        ("decimal", "infra_fail", "gave Decimal('0.5')"),
    ],
)
async def test_what_goes_wrong_is_a_null_with_the_reason(function: str, status: str, reason: str) -> None:
    for score in await scorer(function).score(REQUEST):
        assert (score.score, score.status) == (None, status)
        assert reason in (score.reason or "")


async def test_truth_is_a_number() -> None:
    assert [score.score for score in await scorer("truth").score(REQUEST)] == [1.0, 1.0]


async def test_an_async_function_that_takes_too_long_is_a_timeout() -> None:
    scores = await scorer("hangs_async", timeout_s=0.05).score(REQUEST)
    assert {score.status for score in scores} == {"timeout"}


async def test_a_function_that_hangs_is_a_timeout_then_trouble_and_heals_when_it_ends() -> None:
    functions.release.clear()
    python = scorer("hangs", timeout_s=0.05, concurrency=2)
    assert isinstance(python, Stepwise)
    assert python.advanced_at() == NEVER

    timed_out = await python.score(REQUEST)
    stepped = python.advanced_at()
    assert stepped > NEVER
    assert {score.status for score in timed_out} == {"timeout"}
    assert "all 2 calls" in (python.trouble() or "")
    refused = await python.score(REQUEST)
    assert {score.status for score in refused} == {"infra_fail"}
    assert python.advanced_at() == stepped

    functions.release.set()
    await until(lambda: not python.trouble())
    assert {score.status for score in await python.score(REQUEST)} == {"ok"}


async def test_calls_that_wait_for_their_turn_do_not_time_out() -> None:
    python = scorer("slow", timeout_s=1.0, concurrency=1)
    request = ScoringRequest("t-1", "What?", (Answer("a"),) * 24)
    assert {score.status for score in await python.score(request)} == {"ok"}


async def test_a_cancelled_request_gives_its_place_back() -> None:
    python = scorer("slow", concurrency=1)
    functions.calls.clear()
    scoring = asyncio.create_task(python.score(REQUEST))
    await until(lambda: functions.calls)
    scoring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await scoring
    assert {score.status for score in await python.score(REQUEST)} == {"ok"}
    assert python.trouble() is None


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "names no function"),
        ("math", "names no function"),
        ("no.such.module:f", "can't be imported"),
        ("math:no_such", "can't be imported"),
        ("tests.services.scorer.functions:not_a_function", "is a int, not a function"),
    ],
)
def test_what_is_no_function_is_refused(name: str, fault: str) -> None:
    with pytest.raises(ScorerError, match=fault):
        PythonFunction.build(name, ScorerSettings())


def test_the_identity_is_the_name_and_the_source() -> None:
    identity = scorer("length").identity
    assert identity.id == "python:tests.services.scorer.functions:length"
    assert len(identity.revision) == 12
    assert PythonFunction.build("math:hypot", ScorerSettings()).identity.revision


@given(st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers())
def test_any_value_is_a_score_or_a_null(value: object) -> None:
    score = as_score("f", value)
    if isinstance(value, (int, float)) and not math.isnan(value) and 0 <= value <= 1:
        assert score.score == value
    else:
        assert score.score is None
        assert score.reason
