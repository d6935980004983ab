"""Reaches the fleet's APIs for commands: the address of each service, and the token they show there."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import httpx
import jwt
import typer

from ratchet.http.access.roles import Role
from ratchet.service.errors import BusError
from services.cli.fleet.folder import FleetFolder, FleetRecord
from services.cli.fleet.options import AGENT, FleetOptions, agent_of
from services.cli.fleet.plan import plan_fleet
from services.cli.terminal import CommandError, UsageError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Never reached through the proxy that the environment may name."""
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


OrchestratorUrl = Annotated[
    str | None, typer.Option(help="Where the orchestrator is; where `ratchet up` started it, if not named.")
]
ApiToken = Annotated[
    str | None, typer.Option(envvar="RATCHET_API_TOKEN", show_envvar=True, help="API token, where one is needed.")
]
ApiTokenFile = Annotated[
    Path | None, typer.Option(envvar="RATCHET_API_TOKEN_FILE", show_envvar=True, help="File of the token.")
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


def ask_orchestrator(method: str, path: str, *, url: str | None, token: Token, json: Any = None) -> Any:
    """Return what a route of the orchestrator's API answers with, decoded.

    `url`: where it is; else where `ratchet up` started it. Raises BusError where nobody answers, CommandError with the
    API's own sentence where it refuses.
    """
    typed = () if url is None else (f"orchestrator={url}",)
    base = addresses_of(typed, FleetFolder.here().record()).by_name["orchestrator"]
    try:
        with httpx.Client(base_url=base, auth=Bearer(token), trust_env=is_proxied(base), timeout=TIMEOUT_S) as client:
            answer = client.request(method, path, json=json)
        content = answer.json()
    except httpx.TransportError as error:
        raise BusError(f"nobody answers at {base} ({error!r}): is the fleet up? ratchet up, or name --url") from None
    except ValueError:
        raise CommandError(f"{base} answered {answer.status_code} and no JSON: is it an orchestrator?") from None
    if answer.is_error:
        raise CommandError(str(content.get("detail") or f"HTTP {answer.status_code}"))
    return content
