"""Build the MCP server of the services that can be called: of one, mounted in it, or of all (`ratchet mcp`).

`tools/list` has only what the caller's role may call. That is a courtesy to the model that reads the list, no
protection: the REST API checks each call, whatever was listed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import MCPServer
from starlette.requests import Request

from ratchet.http.access.roles import Role
from ratchet.mcp.in_process import caller_address
from ratchet.mcp.prompts import add_prompts
from ratchet.mcp.resources import add_resources, resources_of
from ratchet.mcp.rest import Services, authorization
from ratchet.mcp.tool_runner import tool_of
from ratchet.mcp.tools import ToolSpec, tools_of

INSTRUCTIONS = (
    "A Ratchet fleet: a small model answers tasks, a bigger one scores the answers, and adapters trained on the scored "
    "answers take over only when live traffic has proved them better. Begin with fleet_status where you have it. Tools "
    "that change something are marked; ask your user before promote and rollback."
)

RoleOf = Callable[[ServerRequestContext[Any, Any]], Role | None]
"""The caller's role; None where it is not known here, so that every tool is listed."""


def build_server(
    name: str, documents: Mapping[str, Mapping[str, Any]], services: Services, role_of: RoleOf
) -> MCPServer[Any]:
    """Build it with the tools and resources of the `services`, and the prompts where the orchestrator is among them.

    `documents`: their OpenAPI documents, by service.
    """
    several = {"agent"} if services.agents else set()
    specs = [one for name, it in documents.items() for one in tools_of(name, it, chooses_agent=name in several)]
    server: MCPServer[Any] = MCPServer(
        name,
        instructions=INSTRUCTIONS,
        tools=[tool_of(spec, services) for spec in specs],
        log_level="WARNING",
        subscriptions=False,
        middleware=(_with_authorization, _Listing(specs, role_of)),
    )
    add_resources(server, [one for name, it in documents.items() for one in resources_of(name, it)], services)
    if "orchestrator" in documents:
        add_prompts(server)
    return server


def role_of_request(context: ServerRequestContext[Any, Any]) -> Role | None:
    """Return the role that the guard found, for a server that is mounted in a service."""
    request = context.request
    return request.scope["state"]["caller"].role if isinstance(request, Request) else None


async def _with_authorization(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Add the caller's authorization header to every call of the API; it decides what the caller may do."""
    request = ctx.request if isinstance(ctx.request, Request) else None
    headers = request.headers if request else {}
    key = headers.get("x-api-key")  # which the guard takes, too
    authorization.set(headers.get("authorization") or (f"Bearer {key}" if key else None))
    if request and request.client:
        caller_address.set(request.client)
    return await call_next(ctx)


class _Listing:
    """Leaves out of `tools/list` (as it goes over the wire) what the caller may not call."""

    def __init__(self, specs: list[ToolSpec], role_of: RoleOf) -> None:
        self._roles = {spec.name: spec.roles for spec in specs}
        self._role_of = role_of

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        role = self._role_of(ctx) if ctx.method == "tools/list" else None
        if role is None or not isinstance(result, dict):
            return result
        allowed = [tool for tool in result["tools"] if role in self._roles[tool["name"]]]
        return result | {"tools": allowed}
