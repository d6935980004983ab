"""A recorder at listening sockets of its own: the one thing outside that a sandboxed program can reach.

What comes through is hostile: connections, requests and the bytes of each are bounded, and none outlives the rollout.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from ratchet.recorder.application import Recorder
from ratchet.recorder.rollout import Budget
from workbench.sandbox.job import Listen

MOST_CONNECTIONS = 128
KEEP_ALIVE_S = 600
CLOSE_WITHIN_S = 1.0


class _Bounded(H11Protocol):
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
        await _closed(state)


async def _closed(state: ServerState) -> None:
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
