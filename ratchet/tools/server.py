"""The toolbox as an MCP server: over stdio, or over streamable HTTP on this machine's loopback.

Over HTTP each request carries a token that is made at the start: another user of the machine, or a page in a browser,
has none. Sessions are not kept, as in the services. A server can't ask its client's user: what the policy
says `ask` to is refused, unless whoever starts the server consents to it beforehand.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase
from mcp_types import CallToolResult, TextContent, ToolAnnotations

from ratchet.mcp.tool_runner import RawArguments
from workbench.tools.operation import Effect, Operation
from workbench.tools.toolbox import Toolbox

INSTRUCTIONS = (
    "Tools for one workspace: files, git, tests, databases; requests and containers where the policy allows them. "
    "Paths are relative to the workspace. Errors say what was wrong and what to do."
)
PATH = "/mcp"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class _Server(MCPServer[Any]):
    """A server whose calls all go to the toolbox, which answers, audits, and refuses what is not offered."""

    def __init__(self, toolbox: Toolbox, **more: Any) -> None:
        super().__init__("ratchet-tools", **more)
        self._toolbox = toolbox

    async def call_tool(self, name: str, arguments: dict[str, Any], context: object = None) -> CallToolResult:
        result = await self._toolbox.call(name, arguments)
        content = [TextContent(type="text", text=result.text)]
        return CallToolResult(content=content, structured_content=result.content, is_error=not result.ok)


def build_server(toolbox: Toolbox) -> MCPServer[Any]:
    """Offers what the policy does not deny."""
    return _Server(
        toolbox,
        instructions=INSTRUCTIONS,
        tools=[_tool(operation, toolbox.call) for operation in toolbox.operations],
        log_level="WARNING",
        subscriptions=False,
    )


def _tool(operation: Operation, call: Callable[..., Any]) -> Tool:
    return Tool(
        fn=call,
        name=operation.name,
        title=operation.name.replace("_", " "),
        description=operation.description,
        parameters=operation.schema,
        fn_metadata=RawArguments(arg_model=ArgModelBase),
        is_async=True,
        annotations=_annotations(operation.effect),
    )


def _annotations(effect: Effect) -> ToolAnnotations:
    return ToolAnnotations(
        read_only_hint=effect in (Effect.READS, Effect.REACHES),
        destructive_hint=effect in (Effect.DESTROYS, Effect.CHANGES),
        open_world_hint=effect.is_open,
    )


class WithToken:
    """An ASGI application that answers 401 to a request without the token."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                headers = [(b"www-authenticate", b"Bearer"), (b"content-type", b"text/plain")]
                await send({"type": "http.response.start", "status": 401, "headers": headers})
                await send(
                    {"type": "http.response.body", "body": b"send the token that `ratchet tools serve` printed\n"}
                )
                return
        await self._app(scope, receive, send)


def http_app(toolbox: Toolbox, token: str) -> WithToken:
    return WithToken(build_server(toolbox).streamable_http_app(streamable_http_path=PATH, stateless_http=True), token)
