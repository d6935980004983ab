"""The scorer's route: answers scored as those of the queue are, and nothing of it logged."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from itertools import repeat
from typing import Protocol

from fastapi import APIRouter, Request

from ratchet.http.operation import OPERATOR, RUNNER, SUBMITTER, operation
from ratchet.http.problem import problems
from ratchet.http.work import while_connected
from schemas.api.generate import ScoreAnswer, ScoreRequest
from schemas.messages.reward import SampleScore, ScorerIdentity
from services.scorer.strategies.strategy import Answer, ScoringRequest, spent_of


class Scoring(Protocol):
    """The part of the worker that the route needs."""

    @property
    def identity(self) -> ScorerIdentity: ...

    async def score(self, request: ScoringRequest) -> Sequence[SampleScore]:
        """One score per answer; a failure is a null with its reason."""


def scorer_router(scorer: Scoring) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["scorer"])

    @router.post("/score", responses=problems(408))
    @operation(
        SUBMITTER,
        OPERATOR,
        RUNNER,
        reach="any",
        title="Score answers",
        tool="score",
        hides=("artifacts", "workspace"),
        answer_s=120.0,
    )
    async def score(request: Request, body: ScoreRequest) -> ScoreAnswer:
        """Score answers as the fleet would: from 0 to 1 each, with a status and a reason. A null score means that it
        could not be scored, not that it is bad. Nothing is logged.
        """
        began = time.perf_counter()
        scores = await while_connected(request, _scores(scorer, body))
        return ScoreAnswer(scorer=scorer.identity, scores=list(scores), seconds=time.perf_counter() - began)

    return router


async def _scores(scorer: Scoring, body: ScoreRequest) -> Sequence[SampleScore]:
    artifacts = body.artifacts or repeat(None, len(body.responses))
    usages = body.usages or repeat(None, len(body.responses))
    return await scorer.score(
        ScoringRequest(
            task_id=f"api-{uuid.uuid4().hex}",
            prompt=body.input,
            answers=tuple(map(Answer, body.responses, repeat(None), artifacts, map(spent_of, usages))),
            workspace=body.workspace,
            reference=body.reference,
            criteria=body.criteria,
            task_type=body.task_type,
        )
    )
