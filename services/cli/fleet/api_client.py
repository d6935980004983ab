"""Reaches the fleet's APIs for commands: the address of each service, and the token they show there."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import httpx
import jwt
import typer

from ratchet.client.http_link import LOOPBACK
from ratchet.http.access.roles import Role
from ratchet.runtime.processes import PROCESSES
from ratchet.service.errors import BusError
from services.cli.fleet.folder import FROM_ELSEWHERE, FleetFolder, FleetRecord
from services.cli.fleet.options import AGENT, FleetOptions, agent_of
from services.cli.fleet.plan import plan_fleet
from services.cli.terminal import CommandError, UsageError

TIMEOUT_S = 60.0
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
    named = dict(_parse_address(url) for url in urls) or _local(record)
    agents: dict[str, str] = {}
    for name, url in named.items():
        if name == AGENT or name.startswith(f"{AGENT}-"):
            agents.setdefault(agent_of(name, record.options if record else FleetOptions()), url)
    return Addresses({name: url for name, url in named.items() if name in SINGLE}, agents)


def _parse_address(url: str) -> tuple[str, str]:
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


FleetUrl = Annotated[str | None, typer.Option(help="Where the orchestrator is; that of this folder's fleet.")]
ManagerUrl = Annotated[str | None, typer.Option(help="Where the manager is; that of this folder's fleet.")]
FleetToken = Annotated[
    str | None,
    typer.Option(
        envvar="RATCHET_API_TOKEN",
        show_envvar=True,
        help="API token, where the fleet asks for one; typed here it can be seen in `ps`.",
    ),
]
ApiTokenFile = Annotated[
    Path | None,
    typer.Option(envvar="RATCHET_API_TOKEN_FILE", show_envvar=True, help="File of the token, read at each call."),
]


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


def is_proxied(url: str) -> bool:
    """Return whether a proxy that the environment names is used for it."""
    return httpx.URL(url).host not in LOOPBACK


def api_client(service: str, url: str | None, token: str | None, token_file: Path | None = None) -> httpx.Client:
    """Return a client of a service of the fleet. `url`: where it is; if None, where this folder's fleet has it.

    The token is read from a file where one is named, by `token_file` or RATCHET_API_TOKEN_FILE, and no token.
    """
    named = os.environ.get("RATCHET_API_TOKEN_FILE")
    file = token_file or (Path(named) if named and not token else None)
    typed = () if url is None else (f"{service}={url}",)
    base = addresses_of(typed, FleetFolder.here().record()).by_name.get(service)
    if base is None:
        base = f"http://127.0.0.1:{PROCESSES[service].port}"
    return httpx.Client(base_url=base, auth=Bearer(Token(token, file)), timeout=TIMEOUT_S, trust_env=is_proxied(base))


def call_api(client: httpx.Client, method: str, path: str, **request: Any) -> Any:
    """Return the JSON of the answer.

    Raises BusError where nobody answers, CommandError with the API's own sentence where it refuses.
    """
    try:
        answer = client.request(method, path, **request)
    except httpx.HTTPError as error:
        raise BusError(
            f"nothing answers at {client.base_url} ({error}): is the fleet up, with this service?; {FROM_ELSEWHERE}"
        ) from None
    try:
        content = answer.json()
    except ValueError:
        raise CommandError(
            f"{method} {path} is answered with {answer.status_code} and no JSON: is {client.base_url} a service of the "
            "fleet?"
        ) from None
    if answer.is_success:
        return content
    why = f"{content.get('title')}: {content.get('detail')}"
    raise CommandError(f"{method} {path} is refused ({answer.status_code}): {why}")
