"""/v1/events: what happens in the fleet, as server-sent events. /v1/ws: the same over a WebSocket.

A client that takes nothing holds up only itself: the next part is made when there is room for it. One that takes
nothing for minutes is cut off by the kernel (ratchet/runtime/runner.py).

A frame of the socket is an event as JSON. The token is the subprotocol `bearer.<token>` beside `ratchet.v1`, or in the
first frame; it is looked at again twice a second, so a revoked one ends the socket. What the client sends later is
passed over.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Annotated, Any, Union

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from ratchet.http.access.guard import CallerOf
from ratchet.http.access.roles import LOCAL, Caller
from ratchet.http.operation import OPERATOR, OWN_TASKS, VIEWER, operation
from ratchet.http.problem import Fault, Problem, problems
from ratchet.http.server.limits import too_many
from ratchet.http.work import wait_for_disconnect
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
        leaving = asyncio.ensure_future(wait_for_disconnect(receive))
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
        who: CallerOf, last_event_id: LastId = None, after: After = None, kinds: Kinds = ""
    ) -> EventStream:
        """Tell the events as they happen; a submitter is told of its own tasks.

        A client that is too slow gets `gap`, and should read the lists again.
        """
        return EventStream(listen(hub, who, last_event_id or after, parse_kinds(kinds)))

    return router


def listen(hub: EventHub, who: Caller, after: str | None, kinds: frozenset[str]) -> AsyncGenerator[bytes, None]:
    """Return the stream of what the caller may hear. Raises Problem 429."""
    if hub.is_full:
        raise too_many("as many clients listen already as there is room for", RETRY_AFTER_S)
    if who != LOCAL and hub.has_enough(who.name):
        raise too_many(f"{who.name} listens in a quarter of all places already", RETRY_AFTER_S)
    only = Only(who.owner if who.own_only else None, who.tenant if who.is_bound else None)
    return hub.stream(after, kinds, who.name, only)


def parse_kinds(kinds: str) -> frozenset[str]:
    """Raises Problem 422 for a kind that there is not."""
    named = frozenset(kind.strip() for kind in kinds.split(",") if kind.strip())
    if unknown := named - set(DATA):
        fault = Fault(pointer="kinds", detail=f"there are: {', '.join(DATA)}")
        raise Problem(422, "Not valid", f"{len(unknown)} of the kinds is none", "invalid", faults=[fault])
    return named


PROTOCOL = "ratchet.v1"
BEARER = "bearer."
FIRST_FRAME_S = 10.0
CHECK_EVERY_S = 0.5
REFUSED, BAD_FRAME, BUSY, AGAIN = 4401, 4400, 4429, 1012
"""Codes of closing: no token that counts, a first frame that is none, no place, come back."""
Admit = Callable[[str | None], Awaitable[Caller]]


class Hello(BaseModel):
    """The first frame: needed for the token where it was no subprotocol, else for a choice of events."""

    model_config = ConfigDict(extra="forbid")

    token: str | None = Field(None, max_length=8000)
    kinds: str = Field("", max_length=200)
    after: str | None = Field(None, max_length=100)


def socket_router(hub: EventHub) -> APIRouter:
    router = APIRouter()

    @router.websocket("/v1/ws")
    async def events_socket(socket: WebSocket) -> None:
        offered = [one.strip() for one in socket.headers.get("sec-websocket-protocol", "").split(",")]
        token = next((one.removeprefix(BEARER) for one in offered if one.startswith(BEARER)), None)
        await socket.accept(subprotocol=PROTOCOL if PROTOCOL in offered else None)
        try:
            await _converse(socket, hub, token)
        except Problem as problem:
            code = {401: REFUSED, 403: REFUSED, 429: BUSY}.get(problem.status, BAD_FRAME)
            await _close(socket, code, f"{problem.title}: {problem.detail}")
        except WebSocketDisconnect:
            pass

    return router


async def _converse(socket: WebSocket, hub: EventHub, token: str | None) -> None:
    """Raises Problem where the client may not listen (any more), WebSocketDisconnect where it has gone."""
    admit: Admit = socket.scope["state"]["admit"]
    hello = Hello(token=token)
    if token is None:
        hello = await _first_frame(socket)
    who = await admit(hello.token)
    stream = listen(hub, who, hello.after, parse_kinds(hello.kinds))
    both = [
        asyncio.create_task(_send(socket, stream)),
        asyncio.create_task(_check(admit, hello.token)),
        asyncio.create_task(_pass_over(socket)),
    ]
    try:
        done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()
    finally:
        for one in both:
            one.cancel()
        await asyncio.gather(*both, return_exceptions=True)
    await _close(socket, AGAIN, "come back with your token")


async def _first_frame(socket: WebSocket) -> Hello:
    try:
        async with asyncio.timeout(FIRST_FRAME_S):
            return Hello.model_validate_json(await socket.receive_text())
    except (ValidationError, KeyError):
        raise Problem(422, "Not a first frame", 'send {"token": "…", "kinds": "task.settled"}') from None
    except TimeoutError:
        raise Problem(422, "No first frame", f"it must come within {FIRST_FRAME_S:g} s") from None


async def _send(socket: WebSocket, stream: AsyncGenerator[bytes, None]) -> None:
    async with aclosing(stream) as parts:
        async for part in parts:
            for frame in frames_of(part):
                await socket.send_text(frame)


async def _check(admit: Admit, token: str | None) -> None:
    """Raises Problem once the token counts no more."""
    while True:
        await asyncio.sleep(CHECK_EVERY_S)
        await admit(token)


async def _pass_over(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
    raise WebSocketDisconnect


def frames_of(part: bytes) -> list[str]:
    """Return the events of a part of the stream, each as a JSON object; of other lines nothing."""
    found = []
    for block in part.decode().split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        fields: dict[str, Any] = dict(line.split(": ", 1) for line in lines)
        if "event" in fields:
            head = json.dumps({"id": fields["id"], "event": fields["event"]})
            found.append(f'{head[:-1]}, "data": {fields["data"]}}}')
    return found


async def _close(socket: WebSocket, code: int, reason: str) -> None:
    with suppress(RuntimeError):  # it is closed
        await socket.close(code, reason.encode()[:120].decode(errors="ignore"))
