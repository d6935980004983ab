"""`ratchet mcp`: the fleet as tools for an MCP client, over stdin and stdout. Nothing else may be written to stdout."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from mcp.server.mcpserver import MCPServer

import schemas
from ratchet.http.access.roles import Role
from ratchet.mcp.rest import Services
from ratchet.mcp.server import build_server
from services.cli.fleet.api_client import Addresses, ApiTokenFile, Bearer, FleetToken, Token, addresses_of, is_proxied
from services.cli.fleet.folder import FleetFolder
from services.cli.terminal import UsageError


def mcp(
    url: Annotated[
        list[str] | None,
        typer.Option("--url", help="Where a service is, as service=https://host:port (agent-small=…); repeatable."),
    ] = None,
    token: FleetToken = None,
    token_file: ApiTokenFile = None,
) -> None:
    """It is not meant to be typed: an MCP client starts it (docs/mcp.md has what to write into its configuration).
    Without `--url` it speaks to the fleet that `ratchet up` started here, and may be started before it.
    """
    if token and token_file:
        raise UsageError("give the token or the file it is in, not both")
    asyncio.run(_serve(addresses_of(url or (), FleetFolder.here().record()), Token(token, token_file)))


NAME = "ratchet"


async def _serve(addresses: Addresses, token: Token) -> None:
    """Returns when the client closes its end."""
    async with AsyncExitStack() as open_clients:

        async def client(url: str) -> httpx.AsyncClient:
            asking = httpx.AsyncClient(base_url=url, auth=Bearer(token), trust_env=is_proxied(url))
            return await open_clients.enter_async_context(asking)

        services = Services(
            {name: await client(url) for name, url in addresses.by_name.items()},
            {agent: await client(url) for agent, url in addresses.agents.items()},
        )
        await fleet_server(services, token).run_stdio_async()


def fleet_server(services: Services, token: Token) -> MCPServer[Any]:
    """The server with the tools of all the `services`, which need not be up yet: their documents lie here."""
    folder = Path(schemas.__file__).parent / "generated/openapi"
    documents = {name: json.loads((folder / f"{name}.json").read_bytes()) for name in sorted(services.names)}

    def role(_: object) -> Role | None:
        return token.role()

    return build_server(NAME, documents, services, role)
