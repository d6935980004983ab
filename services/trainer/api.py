"""The trainer's routes: ask for a run, and see how runs go. What the queue `training` takes is taken here alike."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response

from ratchet.http.access.guard import CallerOf
from ratchet.http.access.roles import Caller
from ratchet.http.paging import Cursor, Limit
from ratchet.http.problem import Problem, problems
from ratchet.http.server.idempotency import IdempotencyKey, id_from_key, key_reused
from ratchet.training_runs.pages import run_page
from ratchet.training_runs.reader import TrainingRunReader
from ratchet.training_runs.store import Job
from ratchet.training_runs.views import run_view
from schemas.api.page import Page
from schemas.api.runs import RunDetail, RunState, RunView, TrainRunRequest
from schemas.messages.base import AgentId, Metadata
from schemas.messages.train_request import TrainRequest

Accept = Callable[[TrainRequest], Awaitable[Job]]
ROUTE = "POST /v1/train"


def trainer_router(accept: Accept, desk: TrainingRunReader) -> APIRouter:
    """`accept` records a request, as it came first: it raises Reject for one that can't be, BusError if not now."""
    router = APIRouter(prefix="/v1", tags=["trainer"])

    @router.post("/train", status_code=202, responses=problems(409) | {202: LOCATED})
    async def train(
        request: Request,
        response: Response,
        body: TrainRunRequest,
        caller: CallerOf,
        idempotency_key: IdempotencyKey = None,
    ) -> RunView:
        """Train a new adapter from the log. Answers when the request is on disk; GET the run for how it goes."""
        asked = _request(body, caller, idempotency_key)
        request.state.concerns = {"run_id": asked.request_id, "agent_id": asked.agent_id}
        job = await accept(asked)
        recorded = await asyncio.to_thread(lambda: job.request)
        if _content(recorded) != _content(asked):
            raise key_reused("training") if body.request_id is None else _taken(asked.request_id)
        response.headers["Location"] = f"/v1/runs/{quote(asked.request_id, safe='')}"
        return await asyncio.to_thread(run_view, job)

    @router.get("/runs")
    async def runs(
        cursor: Cursor = None,
        limit: Limit = 50,
        agent_id: Annotated[AgentId | None, Query(description="Only of this agent.")] = None,
        state: Annotated[RunState | None, Query(description="Only in this state.")] = None,
    ) -> Page[RunView]:
        """The newest first. Of finished runs the trainer keeps the last of each agent (RATCHET_TRAINER_KEEP_JOBS)."""
        return run_page(await asyncio.to_thread(desk.views, agent_id, state), cursor, limit)

    @router.get("/runs/{run_id:path}")
    async def run(run_id: str) -> RunDetail:
        """One run whole."""
        found = await asyncio.to_thread(desk.detail, run_id)
        if found is None:
            raise Problem(404, "No such run", "no run of that id is recorded here: GET /v1/runs lists them", "no-run")
        return found

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


def _taken(request_id: str) -> Problem:
    return Problem(409, "Id taken", f"run {request_id!r} was asked for with other content: take another id", "id-taken")
