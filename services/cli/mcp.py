"""`ratchet mcp`: the fleet as tools for an MCP client, over stdin and stdout. Nothing else may be written to stdout."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import httpx
import jwt
import typer
from mcp.server.mcpserver import MCPServer

import schemas
from ratchet.http.access.roles import Role
from ratchet.mcp.rest import Services
from ratchet.mcp.server import build_server
from services.cli.fleet.folder import FleetFolder, FleetRecord
from services.cli.fleet.options import AGENT, FleetOptions, agent_of
from services.cli.fleet.plan import plan_fleet
from services.cli.terminal import CommandError, UsageError


def mcp(
    url: Annotated[
        list[str] | None,
        typer.Option("--url", help="Where a service is, as service=https://host:port (agent-small=…); repeatable."),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="RATCHET_API_TOKEN",
            show_envvar=True,
            help="API token to call them with; as an option it can be seen in `ps`.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            envvar="RATCHET_API_TOKEN_FILE", show_envvar=True, help="File of the token, read again at each call."
        ),
    ] = None,
) -> None:
    """Serve MCP on stdin and stdout: the tools of orchestrator, agents, runner, scorer and trainer in one server.

    It is not meant to be typed: an MCP client starts it (docs/mcp.md has what to write into its configuration). Without
    `--url` it speaks to the fleet that `ratchet up` started here, and may be started before it.
    """
    if token and token_file:
        raise UsageError("give the token or the file it is in, not both")
    serve_stdio(addresses_of(url or (), FleetFolder.here().record()), Token(token, token_file))


SINGLE = ("orchestrator", "manager", "runner", "scorer", "trainer")
NOWHERE = "amqp://127.0.0.1/"


@dataclass(frozen=True, slots=True)
class Addresses:
    """Base URLs: one of each service, and of each agent's first replica, by the agent's id.

    Services are where was typed, else where `ratchet up` started them, or would.
    """

    by_name: Mapping[str, str]
    agents: Mapping[str, str]


def addresses_of(urls: Iterable[str], record: FleetRecord | None) -> Addresses:
    """`urls` as typed, such as `orchestrator=https://…` or `agent-small=…`. Raises UsageError for one that is none."""
    named = dict(_typed(url) for url in urls) or _local(record)
    agents: dict[str, str] = {}
    for name, url in named.items():
        if name == AGENT or name.startswith(f"{AGENT}-"):
            agents.setdefault(agent_of(name, record.options if record else FleetOptions()), url)
    return Addresses({name: url for name, url in named.items() if name in SINGLE}, agents)


def _typed(url: str) -> tuple[str, str]:
    name, _, address = url.partition("=") if "=" in url.partition("://")[0] else ("orchestrator", "", url)
    if name not in SINGLE and name != AGENT and not name.startswith(f"{AGENT}-"):
        raise UsageError(f"--url {url}: there is no service {name!r}; write {', '.join(SINGLE)} or agent-<its id>")
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--url {url}: {address!r} is no address; write {name}=https://host:port")
    return name, address.rstrip("/")


def _local(record: FleetRecord | None) -> dict[str, str]:
    programs = record.programs if record else plan_fleet(FleetOptions(), Path(), NOWHERE, 0).services
    return {program.name: f"http://127.0.0.1:{program.http_port}" for program in programs if program.http_port}


@dataclass(frozen=True, slots=True)
class Token:
    """`value`, or what is in `file`; neither for a fleet that asks for no tokens.

    Tokens live for a day at most, and an MCP client runs for longer: whoever renews the token rewrites its file, which
    is read again at each call.
    """

    value: str | None = None
    file: Path | None = None

    def read(self) -> str | None:
        """Raises CommandError if the file can't be read."""
        if self.file is None:
            return self.value
        try:
            return self.file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise CommandError(f"the token file {self.file} can't be read: {error.strerror}") from None

    def role(self) -> Role | None:
        """Return the role that it claims, unchecked: good for listing the tools it will do for, for nothing else."""
        try:
            claims = jwt.decode(self.read() or "", options={"verify_signature": False})
            return Role(claims["role"])
        except (CommandError, jwt.InvalidTokenError, KeyError, ValueError):
            return None


class Bearer(httpx.Auth):
    def __init__(self, token: Token) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        if token := self._token.read():
            request.headers["Authorization"] = f"Bearer {token}"
        yield request


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
    """The server with the tools of all the `services`, which need not be up yet: their documents lie here."""
    folder = Path(schemas.__file__).parent / "generated/openapi"
    documents = {name: json.loads((folder / f"{name}.json").read_bytes()) for name in sorted(services.names)}

    def role(_: object) -> Role | None:
        return token.role()

    return build_server(NAME, documents, services, role)
