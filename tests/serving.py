"""An application on a port of its own, for as long as a test needs it; it ends at once."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from tests.waiting import until


class Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._told_to_end = asyncio.Event()

    async def main_loop(self) -> None:
        """Wait for the end, where uvicorn looks for it ten times a second."""
        await self.on_tick(0)
        await self._told_to_end.wait()

    def end(self) -> None:
        self.should_exit = True
        self._told_to_end.set()


@asynccontextmanager
async def serving(app: Any, listener: socket.socket | None = None, **options: Any) -> AsyncIterator[str]:
    """Serve the application; yield its base URL. `options`: of uvicorn.Config."""
    listener = listener or socket.create_server(("127.0.0.1", 0))
    defaults = {"ws": "none", "lifespan": "off", "log_config": None, "timeout_graceful_shutdown": 1}
    server = Server(uvicorn.Config(app, **defaults | options))
    if listener.family == socket.AF_INET:  # asyncio does it for sockets that it made itself
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await until(lambda: server.started or running.done(), "the server is started")
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.end()
        await running
