"""A recorder at listening sockets of its own: the one thing outside that a sandboxed program can reach.

What comes through is hostile: connections, requests and the bytes of each are bounded, and none outlives the rollout.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from ratchet.rollouts.application import Recorder
from ratchet.rollouts.rollout import Budget
from workbench.sandbox.job import Listen

MOST_CONNECTIONS = 128
KEEP_ALIVE_S = 600
CLOSE_WITHIN_S = 1.0
MOST_HEAD = 64 * 1024
"""Bytes of a request's line and headers."""
SMALL_PARTS = 1024
LEAST_PART = 64
"""Bytes of a body's parts in the mean, where there are more than SMALL_PARTS. Each part takes the same time on the
loop, so 64 MiB in chunks of one byte would stop all other rollouts for minutes."""


class _Connection(h11.Connection):
    """Refuses a body that comes in many parts of a few bytes."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._parts = self._bytes = 0
        elif isinstance(event, h11.Data):
            self._parts, self._bytes = self._parts + 1, self._bytes + len(event.data)
            if self._parts > SMALL_PARTS and self._bytes < LEAST_PART * self._parts:
                raise h11.RemoteProtocolError("the body comes in too many parts", 400)
        return event


class _Bounded(H11Protocol):
    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.conn = _Connection(h11.SERVER, MOST_HEAD)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()


class _Counted:
    """Ends the rollout that asks again and again, also for what is refused."""

    def __init__(self, app: ASGIApp, budget: Budget, most: int) -> None:
        self._app, self._budget, self._left = app, budget, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._left -= 1
        if self._left < 0:
            self._budget.end("it sent more requests than a rollout may")
        await self._app(scope, receive, send)


@asynccontextmanager
async def serving(recorder: Recorder, budget: Budget, most_requests: int) -> AsyncIterator[Listen]:
    """Each socket that it is given is answered at until this is left, and closed then."""
    app = _Counted(recorder.application(), budget, most_requests)
    config = uvicorn.Config(
        app, http=_Bounded, ws="none", lifespan="off", log_config=None, timeout_keep_alive=KEEP_ALIVE_S
    )
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    servers: list[asyncio.Task[asyncio.Server]] = []
    over = False

    async def serve(listening: socket.socket) -> asyncio.Server:
        return await loop.create_server(
            lambda: _Bounded(config=config, server_state=state, app_state={}, _loop=loop),
            sock=listening,
            backlog=MOST_CONNECTIONS,
        )

    def begin(listening: socket.socket) -> None:
        if over:
            listening.close()
        else:
            servers.append(loop.create_task(serve(listening)))

    def listen(listening: socket.socket) -> None:
        loop.call_soon_threadsafe(begin, listening)

    try:
        yield listen
    finally:
        over = True
        for server in await asyncio.gather(*servers, return_exceptions=True):
            if not isinstance(server, BaseException):  # uvloop's is no asyncio.Server
                server.close()
        await _close_connections(state)


async def _close_connections(state: ServerState) -> None:
    """Connections that are idle at once, the rest after a moment."""
    for connection in list(state.connections):
        connection.shutdown()
    if state.tasks:
        await asyncio.wait(state.tasks, timeout=CLOSE_WITHIN_S)
    for connection in list(state.connections):
        connection.transport.abort()
    for task in (ending := list(state.tasks)):
        task.cancel()
    if ending:
        await asyncio.wait(ending, timeout=CLOSE_WITHIN_S)
