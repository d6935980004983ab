"""Call an application of this process as if over the network: a caller that gives up has gone away, and no more.

The request then goes on without it, as behind a real server: a change is not broken off half-way, and a route that
looks whether its client is still there sees that it is not. Answers are held whole; streams are not for here.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import httpx
from starlette.types import ASGIApp, Message

Address = tuple[str, int]

caller_address: ContextVar[Address] = ContextVar("caller_address", default=("127.0.0.1", 0))
"""The address of the request that makes the calls, for the audit."""


class InProcess(httpx.AsyncBaseTransport):
    """`app` answers; what it raises is raised."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._running: set[asyncio.Task[None]] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        exchange = _Exchange(await request.aread())
        answering = asyncio.ensure_future(self._answer(request, exchange))
        self._running.add(answering)
        answering.add_done_callback(self._running.discard)
        try:
            await asyncio.wait((answering,))
        finally:
            exchange.ended.set()
        answering.result()
        return exchange.response()

    async def _answer(self, request: httpx.Request, exchange: _Exchange) -> None:
        await self._app(_scope(request), exchange.receive, exchange.send)


class _Exchange:
    def __init__(self, body: bytes) -> None:
        self.ended = asyncio.Event()
        self._body: bytes | None = body
        self._status = 500
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []

    async def receive(self) -> Message:
        if self._body is None:
            await self.ended.wait()
            return {"type": "http.disconnect"}
        message = {"type": "http.request", "body": self._body, "more_body": False}
        self._body = None
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = list(message.get("headers", []))
        else:
            self._parts.append(message.get("body", b""))

    def response(self) -> httpx.Response:
        return httpx.Response(self._status, headers=self._headers, content=b"".join(self._parts))


def _scope(request: httpx.Request) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "scheme": request.url.scheme,
        "path": request.url.path,
        "raw_path": request.url.raw_path.partition(b"?")[0],
        "query_string": request.url.query,
        "server": (request.url.host, request.url.port),
        "client": caller_address.get(),
        "root_path": "",
    }
