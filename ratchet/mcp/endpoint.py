"""`/mcp` of a service: MCP over streamable HTTP, without sessions, on the service's own port and behind its guard.

Each request (POST) stands for itself, so any replica may answer it and nothing is kept between two. A client ends a
call by closing its connection. There is no stream that the server opens (GET) and no session to end (DELETE).

The SDK costs half a second of CPU and 25 MB to load, so it is loaded at the first request, in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import httpx
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from ratchet.http.operation import OPERATOR, SUBMITTER, VIEWER, Operation

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer
    from mcp.server.transport_security import TransportSecuritySettings

PATH = "/mcp"
LOOPBACK = "http://127.0.0.1"


class McpEndpoint:
    """An ASGI application; `app` is the service's own, whose routes the tools call in process."""

    operation = Operation(frozenset({VIEWER, SUBMITTER, OPERATOR}), reach="any")

    def __init__(self, service: str, app: FastAPI, max_body_bytes: int) -> None:
        self._service = service
        self._app = app
        self._max_body_bytes = max_body_bytes
        self._server: MCPServer[Any] | None = None
        self._loading = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        server = await self._load()
        server.streamable_http_app(
            stateless_http=True, max_request_body_size=self._max_body_bytes, transport_security=self._security()
        )
        manager = server.session_manager  # of this request alone: a manager runs once
        async with manager.run():
            await manager.handle_request(scope, receive, send)

    def _security(self) -> TransportSecuritySettings:
        """The guard has looked at Host and Origin."""
        from mcp.server.transport_security import TransportSecuritySettings

        return TransportSecuritySettings(enable_dns_rebinding_protection=False)

    async def _load(self) -> MCPServer[Any]:
        async with self._loading:
            if self._server is None:
                self._server = await asyncio.to_thread(self._build)
            return self._server

    def _build(self) -> MCPServer[Any]:
        from ratchet.mcp.in_process import InProcess
        from ratchet.mcp.rest import Services
        from ratchet.mcp.server import build_server, role_of_request

        logging.getLogger("mcp").setLevel(logging.WARNING)
        client = httpx.AsyncClient(transport=InProcess(self._app), base_url=LOOPBACK)
        services = Services({self._service: client}, {})
        documents = {self._service: self._app.openapi()}
        return build_server(f"ratchet-{self._service}", documents, services, role_of_request)
