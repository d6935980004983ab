"""Serve MCP on stdin and stdout, with the tools of every service of a fleet. Nothing else may be written to stdout."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import httpx
from mcp.server.mcpserver import MCPServer

from ratchet.cli.mcp.addresses import Addresses
from ratchet.cli.mcp.bearer import Bearer, Token
from ratchet.http.access.roles import Role
from ratchet.mcp.rest import Services
from ratchet.mcp.server import build_server

NAME = "ratchet"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Never reached through the proxy that the environment may name."""


def serve_stdio(addresses: Addresses, token: Token) -> None:
    """Returns when the client closes its end."""
    asyncio.run(_serve(addresses, token))


async def _serve(addresses: Addresses, token: Token) -> None:
    async with AsyncExitStack() as open_clients:

        async def client(url: str) -> httpx.AsyncClient:
            proxied = httpx.URL(url).host not in LOOPBACK
            asking = httpx.AsyncClient(base_url=url, auth=Bearer(token), trust_env=proxied)
            return await open_clients.enter_async_context(asking)

        services = Services(
            {name: await client(url) for name, url in addresses.by_name.items()},
            {agent: await client(url) for agent, url in addresses.agents.items()},
        )
        await fleet_server(services, token).run_stdio_async()


def fleet_server(services: Services, token: Token) -> MCPServer[Any]:
    """The server with the tools of all the `services`."""

    def role(_: object) -> Role | None:
        return token.role()

    return build_server(NAME, services, role)
