"""Ask the trainer for a run: what the queue `training` takes is taken here alike. How runs go: ratchet/runs/api.py."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response

from ratchet.http.access.guard import CallerOf
from ratchet.http.access.roles import Caller
from ratchet.http.operation import OPERATOR, Effect, operation
from ratchet.http.problem import Problem, problems
from ratchet.http.server.idempotency import IdempotencyKey, id_from_key, key_reused
from ratchet.runs.store import RunFolder
from schemas.api.runs import RunView, TrainRunRequest
from schemas.messages.base import Metadata
from schemas.messages.training import TrainRequest

Accept = Callable[[TrainRequest], Awaitable[RunFolder]]
ROUTE = "POST /v1/train"


def trainer_router(accept: Accept) -> APIRouter:
    """`accept` records a request, as it came first: it raises Reject for one that can't be, BusError if not now."""
    router = APIRouter(prefix="/v1", tags=["trainer"])

    @router.post("/train", status_code=202, responses=problems(409) | {202: LOCATED})
    @operation(
        OPERATOR,
        effect=Effect.ADDS,
        title="Start a training",
        tool="start_training",
        follow=("trained", "refused", "failed"),
    )
    async def train(
        request: Request,
        response: Response,
        body: TrainRunRequest,
        caller: CallerOf,
        idempotency_key: IdempotencyKey = None,
    ) -> RunView:
        """Train a new adapter from the log of scored answers. It takes minutes to hours: the answer comes when the
        request is on disk, and the run says how it goes. The trainer refuses, with the reason and the numbers, when the
        data can't support it. What was trained is then tried on a share of the live traffic, and takes over only when
        that proves it better.
        """
        asked = _request(body, caller, idempotency_key)
        request.state.concerns = {"run_id": asked.request_id, "agent_id": asked.agent_id}
        folder = await accept(asked)
        recorded = await asyncio.to_thread(lambda: folder.request)
        if _content(recorded) != _content(asked):
            if body.request_id is None:
                raise key_reused("training")
            why = f"run {body.request_id!r} was asked for with other content: take another id"
            raise Problem(409, "Id taken", why, "id-taken")
        response.headers["Location"] = f"/v1/trainings/{quote(asked.request_id, safe='')}"
        return await asyncio.to_thread(lambda: folder.run.view)

    return router


LOCATED: dict[str, Any] = {
    "description": "The request is on disk.",
    "headers": {"Location": {"description": "Where the run is to be seen.", "schema": {"type": "string"}}},
}


def _request(body: TrainRunRequest, caller: Caller, key: str | None) -> TrainRequest:
    now = datetime.now(UTC)
    made_up = id_from_key(caller, ROUTE, key) if key else f"api-{now:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"
    given = {name: value for name, value in body if value is not None}
    metadata = Metadata(timestamp=now, source=f"api:{caller.name}")
    return TrainRequest(**({"request_id": made_up} | given), metadata=metadata)


def _content(request: TrainRequest) -> dict[str, Any]:
    return request.model_dump(exclude={"metadata"})
