"""A recorder at a Unix socket of its own: the one thing outside that a sandboxed program can reach.

What comes through is hostile: connections, requests and the bytes of each are bounded, and none outlives the rollout.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from ratchet.recorder.application import Recorder
from ratchet.recorder.rollout import Budget

MOST_CONNECTIONS = 128
KEEP_ALIVE_S = 600
CLOSE_WITHIN_S = 1.0
EVERYBODY = 0o666
"""A sandboxed program has a user id of its own; what it needs is the socket, which only its sandbox has, and a key."""


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
async def serving_at(path: Path, recorder: Recorder, budget: Budget, most_requests: int) -> AsyncIterator[None]:
    """The socket is there, for whoever sees it, until this is left. Raises OSError where it can't be made."""
    app = _Counted(recorder.application(), budget, most_requests)
    config = uvicorn.Config(
        app, http=_Bounded, ws="none", lifespan="off", log_config=None, timeout_keep_alive=KEEP_ALIVE_S
    )
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    listening = _bound(path)
    server = await loop.create_unix_server(
        lambda: _Bounded(config=config, server_state=state, app_state={}, _loop=loop),
        sock=listening,
        backlog=MOST_CONNECTIONS,
    )
    try:
        yield
    finally:
        server.close()
        await _closed(state)
        path.unlink(missing_ok=True)


def _bound(path: Path) -> socket.socket:
    """Below any folder, however long its path: it is named by way of the folder's descriptor."""
    listening = socket.socket(socket.AF_UNIX)
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        listening.bind(f"/proc/self/fd/{folder}/{path.name}")
        path.chmod(EVERYBODY)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    finally:
        os.close(folder)
    return listening


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
