"""Scores by a big model's verdict: `absolute`, each answer by itself, or `relative`, the whole group in one call.

Here are the calls and the votes; the prompt is in rubric.py, the reading of verdicts in verdict.py.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any, Self

from ratchet.bus.in_hand import NEVER
from ratchet.openai.client import OpenAiClient, http_client
from ratchet.openai.transport import CallTimeout, RequestRefused, ServerUnavailable
from ratchet.service.errors import ScorerError
from schemas.messages.reward import SampleScore, ScorerIdentity
from services.scorer import metrics
from services.scorer.rubric import load_rubric, render, rubric_sha256
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.strategy import Answer, ScoringRequest, failure, no_score, ran_out_of_time
from services.scorer.strategies.verifier import score_distinct
from services.scorer.verdict import (
    Case,
    Grade,
    Shown,
    VerdictError,
    answer_ids,
    derive_nonce,
    in_request_order,
    parse_verdict,
    shown_order,
    verdict_schema,
)

MODES = ("absolute", "relative")
REASON_CHARS = 500


class Judge:
    """Every call is made at temperature 0 and must follow a JSON Schema; a reply that does not is no score."""

    def __init__(self, mode: str, settings: ScorerSettings) -> None:
        self._relative = mode == "relative"
        self._settings = settings
        self._rubric = load_rubric(settings.scorer_judge_rubric)
        self._key = _secret(settings)
        self._client: OpenAiClient | None = None
        self._advanced_at = NEVER
        shown = ";distinct" if self._relative else ""  # a copy that is not shown changes what the others stand beside
        self._identity = ScorerIdentity(
            id=f"judge:{mode}",
            revision=f"{settings.scorer_judge_model};votes={settings.scorer_judge_votes}{shown}",
            rubric_sha256=rubric_sha256(self._rubric),
        )

    @classmethod
    def build(cls, argument: str, settings: ScorerSettings) -> Self:
        if (mode := argument or "absolute") not in MODES:
            raise ScorerError(f"there is no judge {mode!r}: choose judge:absolute or judge:relative")
        if not settings.scorer_judge_model:
            raise ScorerError("the judge needs a model: set RATCHET_SCORER_JUDGE_MODEL (and RATCHET_SCORER_JUDGE_URL)")
        if not settings.scorer_judge_url.startswith(("http://", "https://")):
            raise ScorerError(f"RATCHET_SCORER_JUDGE_URL={settings.scorer_judge_url!r} is no http:// or https:// URL")
        return cls(mode, settings)

    @property
    def identity(self) -> ScorerIdentity:
        return self._identity

    async def start(self) -> None:
        settings = self._settings
        key, calls = settings.scorer_judge_api_key, settings.scorer_judge_concurrency
        self._client = OpenAiClient(
            http_client(settings.scorer_judge_url, key.get_secret_value() if key else None, connections=calls + 1),
            setting="RATCHET_SCORER_JUDGE_URL",
            timeout_s=settings.scorer_judge_timeout_s,
            retries=settings.scorer_judge_retries,
            concurrency=calls,
        )
        await self._client.start()

    async def stop(self) -> None:
        if self._client:
            await self._client.stop()

    def trouble(self) -> str | None:
        return self._client.trouble() if self._client else "the judge is not started yet"

    def advanced_at(self) -> float:
        return self._advanced_at

    def _note_step(self) -> None:
        """A call ended, with a verdict or without, or began; the next one to end does so within its time."""
        self._advanced_at = time.monotonic() + self._settings.scorer_judge_timeout_s

    async def score(self, request: ScoringRequest) -> list[SampleScore]:
        return await score_distinct(request, self._judge, repeat_share=self._settings.scorer_judge_repeat_share)

    @property
    def one_by_one(self) -> bool:
        return not self._relative

    async def compare(self, request: ScoringRequest, answers: Sequence[Answer]) -> list[float] | None:
        """Compare the answers side by side. Return their means in [0, 1], or None unless most calls brought a verdict.

        There are as many calls as answers; in each another answer stands first.
        """
        turns = range(len(answers))
        ballots = await asyncio.gather(*(self._ballot(request, answers, turn) for turn in turns))
        valid = [[score.score or 0.0 for score in ballot] for ballot in ballots if ballot[0].score is not None]
        if 2 * len(valid) <= len(ballots):
            return None
        return [fmean(of_one) for of_one in zip(*valid, strict=True)]

    async def _judge(self, request: ScoringRequest) -> list[SampleScore]:
        panels = [request.answers] if self._relative else [(answer,) for answer in request.answers]
        scored = await asyncio.gather(*(self._panel(request, answers) for answers in panels))
        return [score for panel in scored for score in panel]

    async def _panel(self, request: ScoringRequest, answers: Sequence[Answer]) -> list[SampleScore]:
        votes = range(self._settings.scorer_judge_votes)
        ballots = await asyncio.gather(*(self._ballot(request, answers, vote) for vote in votes))
        return [majority(of_one_answer) for of_one_answer in zip(*ballots, strict=True)]

    async def _ballot(self, request: ScoringRequest, answers: Sequence[Answer], vote: int) -> list[SampleScore]:
        order = shown_order(request.task_id, len(answers), vote)
        try:
            grades = await self._grades(make_case(request, [answers[index] for index in order], self._key, vote))
        except (VerdictError, RequestRefused) as error:
            metrics.judge_calls.labels("refused").inc()
            return no_score(len(answers), str(error))
        except CallTimeout as error:
            metrics.judge_calls.labels("timeout").inc()
            return ran_out_of_time(len(answers), str(error))
        except ServerUnavailable as error:
            metrics.judge_calls.labels("unavailable").inc()
            return failure(len(answers), str(error))
        finally:
            self._note_step()
        metrics.judge_calls.labels("ok").inc()
        return [
            SampleScore(score=grade.score, reason=grade.reason[:REASON_CHARS])
            for grade in in_request_order(grades, order)
        ]

    async def _grades(self, case: Case) -> list[Grade]:
        if self._client is None:
            raise ScorerError("the judge is not started")
        self._note_step()
        return parse_verdict(await self._client.chat(self._call(case)), case)

    def _call(self, case: Case) -> dict[str, Any]:
        schema = {"name": "verdict", "strict": True, "schema": verdict_schema(case)}
        return {
            "model": self._settings.scorer_judge_model,
            "messages": render(case, self._rubric, max_chars=self._settings.scorer_judge_max_answer_chars),
            "temperature": 0,
            "max_tokens": self._settings.scorer_judge_max_tokens,
            "response_format": {"type": "json_schema", "json_schema": schema},
        }


def make_case(request: ScoringRequest, answers: Sequence[Answer], key: bytes, vote: int) -> Case:
    """The answers in the order shown, under a nonce of this very call."""
    texts = [answer.text for answer in answers]
    nonce = derive_nonce(key, request.task_id, request.prompt, request.reference, request.criteria, texts, vote)
    shown = tuple(map(Shown, answer_ids(nonce, len(texts)), texts))
    return Case(nonce, request.prompt, shown, request.reference, request.criteria)


def majority(votes: Sequence[SampleScore]) -> SampleScore:
    """The median of the scores, with the reason of the vote nearest to it; a null unless more than half are scores."""
    valid = [vote for vote in votes if vote.score is not None]
    if 2 * len(valid) <= len(votes):
        return next(vote for vote in votes if vote.score is None)
    middle = median(vote.score or 0.0 for vote in valid)
    nearest = min(valid, key=lambda vote: abs((vote.score or 0.0) - middle))
    return SampleScore(score=middle, reason=nearest.reason)


def _secret(settings: ScorerSettings) -> bytes:
    key = settings.scorer_judge_fence_key
    return key.get_secret_value().encode() if key else os.urandom(32)
