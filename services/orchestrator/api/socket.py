"""/v1/ws: the events of /v1/events over a WebSocket, for clients that can hold one open more easily than a stream.

A frame is an event as JSON. The token is the subprotocol `bearer.<token>` beside `ratchet.v1`, or in the first frame;
it is looked at again twice a second, so a revoked one ends the socket. What the client sends later is passed over. One
that takes nothing holds up only itself: it is told how much it missed, as on the stream.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from ratchet.http.access.roles import LOCAL, Caller
from ratchet.http.problem import Problem
from services.orchestrator.api.events import parse_kinds
from services.orchestrator.observation.event_hub import EventHub, Only

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
    kinds = parse_kinds(hello.kinds)
    if hub.is_full or (who != LOCAL and hub.has_enough(who.name)):
        raise Problem(429, "Too many", "as many clients listen already as there is room for")
    only = Only(who.owner if who.own_only else None, who.tenant if who.is_bound else None)
    both = [
        asyncio.create_task(_send(socket, hub, hello.after, kinds, who, only)),
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


async def _send(
    socket: WebSocket, hub: EventHub, after: str | None, kinds: frozenset[str], who: Caller, only: Only
) -> None:
    async with aclosing(hub.stream(after, kinds, who.name, only)) as parts:
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
