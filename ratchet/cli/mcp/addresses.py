"""Where the services of the fleet listen: what was typed first, else what `ratchet up` started, or would start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ratchet.cli.fleet.folder import FleetRecord
from ratchet.cli.fleet.options import FleetOptions
from ratchet.cli.fleet.plan import plan_fleet
from ratchet.cli.terminal.exit_codes import UsageError

AGENT = "agent"
SINGLE = ("orchestrator", "scorer", "trainer")
NOWHERE = "amqp://127.0.0.1/"


@dataclass(frozen=True, slots=True)
class Addresses:
    """Base URLs: one of each service, and of each agent's first replica, by the agent's id."""

    by_name: Mapping[str, str]
    agents: Mapping[str, str]


def addresses_of(urls: Iterable[str], record: FleetRecord | None) -> Addresses:
    """`urls` as typed, such as `orchestrator=https://…` or `agent-small=…`. Raises UsageError for one that is none."""
    named = dict(_typed(url) for url in urls) or _local(record)
    agents: dict[str, str] = {}
    for name, url in named.items():
        if name == AGENT or name.startswith(f"{AGENT}-"):
            agents.setdefault(_agent_id(name, record.options if record else FleetOptions()), url)
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


def _agent_id(name: str, options: FleetOptions) -> str:
    """`agent-small` and `agent-small-2` are the agent small, where several replicas run."""
    found = name.removeprefix(AGENT).removeprefix("-") or options.agents[0]
    base, _, replica = found.rpartition("-")
    return base if replica.isdigit() and base in options.agents and found not in options.agents else found
