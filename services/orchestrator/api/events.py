"""/v1/events: what happens in the fleet, as server-sent events. A stream ends when its client goes.

A client that takes nothing holds up only itself: the next part is made when there is room for it. One that takes
nothing for minutes is cut off by the kernel (ratchet/runtime/runner.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Annotated, Any, Union

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ratchet.http.access.guard import CallerOf
from ratchet.http.access.roles import LOCAL
from ratchet.http.operation import OPERATOR, OWN_TASKS, VIEWER, operation
from ratchet.http.problem import Fault, Problem, problems
from ratchet.http.server.limits import too_many
from schemas.api.events import (
    AdapterMoved,
    AgentMoved,
    ApprovalMoved,
    DecisionMade,
    EventKind,
    ExperimentMoved,
    Gap,
    QueuesLooked,
    RolloutMoved,
    TaskSettled,
    TrainingMoved,
    stream_event_model,
)
from services.orchestrator.observation.event_hub import EventHub, Only

HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class EventStream(Response):
    media_type = "text/event-stream"

    def __init__(self, parts: AsyncGenerator[bytes, None]) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, leaving):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._parts) as parts:
            async for part in parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


RETRY_AFTER_S = 30
DATA: dict[EventKind, type[BaseModel]] = {
    "task.settled": TaskSettled,
    "decision": DecisionMade,
    "experiment": ExperimentMoved,
    "queues": QueuesLooked,
    "adapter": AdapterMoved,
    "training": TrainingMoved,
    "rollout": RolloutMoved,
    "agent": AgentMoved,
    "approval": ApprovalMoved,
    "gap": Gap,
}
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events; the schema is that of one of them.",
        "model": Union[tuple(stream_event_model(kind, model) for kind, model in DATA.items())],  # noqa: UP007
    }
}
LastId = Annotated[str | None, Header(alias="Last-Event-ID", max_length=100, description="Go on after this event.")]

After = Annotated[str | None, Query(max_length=100, description="As Last-Event-ID, for clients that can't send it.")]
Kinds = Annotated[str, Query(max_length=200, description="Only these kinds, by comma; all if empty.")]


def events_router(hub: EventHub) -> APIRouter:
    router = APIRouter(tags=["events"])

    @router.get("/v1/events", status_code=200, response_class=EventStream, responses=STREAM | problems(422, 429))
    @operation(VIEWER, OWN_TASKS, OPERATOR)
    async def events(
        who: CallerOf,
        last_event_id: LastId = None,
        after: After = None,
        kinds: Kinds = "",
    ) -> EventStream:
        """Tell the events as they happen; a submitter is told of its own tasks.

        A client that is too slow gets `gap`, and should read the lists again.
        """
        if hub.is_full:
            raise too_many("as many clients listen already as there is room for", RETRY_AFTER_S)
        if who != LOCAL and hub.has_enough(who.name):
            raise too_many(f"{who.name} listens in a quarter of all places already", RETRY_AFTER_S)
        only = Only(who.owner if who.own_only else None, who.tenant if who.is_bound else None)
        return EventStream(hub.stream(last_event_id or after, parse_kinds(kinds), who.name, only))

    return router


def parse_kinds(kinds: str) -> frozenset[str]:
    """Raises Problem 422 for a kind that there is not."""
    named = frozenset(kind.strip() for kind in kinds.split(",") if kind.strip())
    if unknown := named - set(DATA):
        fault = Fault(pointer="kinds", detail=f"there are: {', '.join(DATA)}")
        raise Problem(422, "Not valid", f"{len(unknown)} of the kinds is none", "invalid", faults=[fault])
    return named
