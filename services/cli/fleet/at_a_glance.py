"""What the orchestrator of the fleet that runs here says of it, as `/v1/status` does; nothing where it is silent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schemas.api.status import HeldUp
from services.cli.fleet.folder import FleetRecord
from services.cli.fleet.service_http import answer_of


def at_a_glance(record: FleetRecord | None) -> Any:
    return told_at("/v1/status", record)


def told_at(path: str, record: FleetRecord | None) -> Any:
    """Of a route of its API, decoded; None where it does not answer, or refuses."""
    port = record.port_of("orchestrator") if record else None
    return answer_of(port, path) if port else None


def held_up(glance: Any) -> Iterator[tuple[str, HeldUp]]:
    """With the agent of each. An orchestrator from before there was such a thing says nothing of it."""
    for agent in glance["agents"] if glance else ():
        for one in agent.get("held_up", ()):
            yield agent["agent_id"], HeldUp.model_validate(one)
