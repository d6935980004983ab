from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ratchet.bus.in_hand import NEVER, Stepwise
from schemas.messages.reward import SampleScore
from services.scorer.metrics import judge_calls
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.judge import Judge, majority
from services.scorer.strategies.strategy import Answer, ScoringRequest
from tests.ratchet.openai.model_server import MODEL, Fault, ModelServer, running, verdict
from tests.services.scorer.naive_judge import material_of, wanted_verdict

REQUEST = ScoringRequest("t-1", "What?", (Answer("bad"), Answer("fair"), Answer("good")), reference="good")
POINTS = {"bad": 0, "fair": 5, "good": 10}


def honest(body: dict[str, Any]) -> str:
    answers = material_of(body)["answers"]
    return verdict(wanted_verdict(body)[0], {answer["id"]: POINTS[answer["text"]] for answer in answers})


def favours_the_first_place(body: dict[str, Any]) -> str:
    nonce, ids = wanted_verdict(body)
    return verdict(nonce, {each: 10 if place == 0 else 0 for place, each in enumerate(ids)})


@asynccontextmanager
async def judging(
    mode: str, brain: Callable[[dict[str, Any]], str | None], **given: Any
) -> AsyncIterator[tuple[Judge, ModelServer]]:
    async with running(brain) as server:
        options: dict[str, Any] = {
            "scorer_judge_url": server.url,
            "scorer_judge_model": MODEL,
            "scorer_judge_repeat_share": 0,
        }
        judge = Judge.build(mode, ScorerSettings(**(options | given)))
        await judge.start()
        yield judge, server
        await judge.stop()


@pytest.mark.parametrize(("mode", "calls"), [("absolute", 3), ("relative", 1)])
async def test_every_answer_gets_its_own_score_whatever_the_order_shown(mode: str, calls: int) -> None:
    async with judging(mode, honest) as (judge, server):
        scores = await judge.score(REQUEST)
    assert [score.score for score in scores] == [0.0, 0.5, 1.0]
    assert {score.reason for score in scores} == {"because"}
    assert len(server.requests) == calls


async def test_equal_answers_are_judged_once_and_a_share_of_the_tasks_twice() -> None:
    request = ScoringRequest("t-1", "What?", (Answer("good"), Answer("bad"), Answer("good")))
    async with judging("absolute", honest) as (judge, server):
        scores = await judge.score(request)
    assert [score.score for score in scores] == [1.0, 0.0, 1.0]
    assert len(server.requests) == 2
    async with judging("absolute", honest, scorer_judge_repeat_share=1.0) as (judge, server):
        assert await judge.score(request) == scores
    assert len(server.requests) == 4
    assert len({wanted_verdict(body)[0] for body in server.requests}) == 4


async def test_a_call_counts_as_progress_for_as_long_as_it_may_take() -> None:
    async with judging("absolute", honest, scorer_judge_timeout_s=70.0) as (judge, _):
        assert isinstance(judge, Stepwise)
        assert judge.advanced_at() == NEVER
        began = time.monotonic()
        await judge.score(REQUEST)
        assert began + 70 <= judge.advanced_at() <= time.monotonic() + 70


async def test_a_call_is_deterministic_and_bound_to_a_strict_schema() -> None:
    async with judging("relative", honest, scorer_judge_max_tokens=99) as (judge, server):
        await judge.score(REQUEST)
    (body,) = server.requests
    assert (body["model"], body["temperature"], body["max_tokens"]) == (MODEL, 0, 99)
    assert body["response_format"]["type"] == "json_schema"
    assert body["response_format"]["json_schema"]["strict"] is True


async def test_with_a_fixed_key_the_same_task_makes_the_same_calls_and_without_one_other_fences() -> None:
    async def calls(**given: Any) -> list[dict[str, Any]]:
        async with judging("relative", honest, **given) as (judge, server):
            await judge.score(REQUEST)
        return server.requests

    assert await calls(scorer_judge_fence_key="k") == await calls(scorer_judge_fence_key="k")
    assert await calls() != await calls()


async def test_votes_over_rotated_orders_cancel_a_liking_for_a_place() -> None:
    async with judging("relative", favours_the_first_place) as (judge, _):
        once = [score.score for score in await judge.score(REQUEST)]
    async with judging("relative", favours_the_first_place, scorer_judge_votes=3) as (judge, server):
        thrice = [score.score for score in await judge.score(REQUEST)]
    assert sorted(once) == [0.0, 0.0, 1.0]  # type: ignore[type-var]
    assert thrice == [0.0, 0.0, 0.0]
    assert len(server.requests) == 3


@pytest.mark.parametrize("mode", ["absolute", "relative"])
@pytest.mark.parametrize("reply", ["", "10", '{"score": 10}', "I think it deserves a 10.", None])
async def test_an_unparsable_verdict_is_no_score_and_never_zero(mode: str, reply: str | None) -> None:
    async with judging(mode, lambda body: reply) as (judge, _):
        scores = await judge.score(REQUEST)
    assert [(score.score, score.status) for score in scores] == [(None, "unscorable")] * 3
    assert all(score.reason for score in scores)


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (Fault(500), "infra_fail"),
        (Fault(401), "infra_fail"),
        (Fault(400), "unscorable"),
        (Fault(wait_s=0.8), "timeout"),
    ],
)
async def test_a_failed_call_is_a_null_with_its_status(fault: Fault, status: str) -> None:
    outcome = {"infra_fail": "unavailable", "unscorable": "refused"}.get(status, status)
    before = judge_calls.labels(outcome).value
    timeout_s = 0.3 if status == "timeout" else 30.0
    async with judging("relative", honest, scorer_judge_retries=0, scorer_judge_timeout_s=timeout_s) as (judge, server):
        server.faults.append(fault)
        scores = await judge.score(REQUEST)
    assert [(score.score, score.status) for score in scores] == [(None, status)] * 3
    assert judge_calls.labels(outcome).value == before + 1


async def test_in_absolute_mode_one_failed_call_leaves_the_other_answers_their_scores() -> None:
    async with judging("absolute", honest, scorer_judge_concurrency=1) as (judge, server):
        server.faults.append(Fault(400))
        scores = await judge.score(REQUEST)
    assert [score.score for score in scores] == [None, 0.5, 1.0]


async def test_the_tasks_criteria_reach_the_judge() -> None:
    async with judging("absolute", honest) as (judge, server):
        await judge.score(ScoringRequest("t-1", "What?", (Answer("good"),), criteria="Must rhyme."))
    assert '"Must rhyme."' in json.dumps(server.requests[0]["messages"][1]["content"]).replace('\\"', '"')


def test_the_identity_changes_with_model_votes_mode_and_rubric(tmp_path: Any) -> None:
    rubric = tmp_path / "rubric.md"
    rubric.write_text("Rhymes.")

    def identity(mode: str = "absolute", model: str = "m", **given: Any) -> object:
        return Judge.build(mode, ScorerSettings(scorer_judge_model=model, **given)).identity

    others = [
        identity("relative"),
        identity(model="n"),
        identity(scorer_judge_votes=3),
        identity(scorer_judge_rubric=rubric),
    ]
    assert identity() == identity()
    assert identity() not in others


def score(value: float | None, reason: str = "r") -> SampleScore:
    return SampleScore(score=value, status="ok" if value is not None else "unscorable", reason=reason)


@pytest.mark.parametrize(
    ("votes", "whole"),
    [
        ([score(0.4)], score(0.4)),
        ([score(0.1), score(0.9, "nearest"), score(1.0)], score(0.9, "nearest")),
        ([score(0.25, "first"), score(0.75)], score(0.5, "first")),
        ([score(None), score(0.4), score(0.6)], score(0.5)),
        ([score(None, "why"), score(0.4)], score(None, "why")),
        ([score(None, "why")], score(None, "why")),
    ],
)
def test_the_median_counts_where_more_than_half_of_the_votes_are_scores(
    votes: list[SampleScore], whole: SampleScore
) -> None:
    assert majority(votes) == whole
