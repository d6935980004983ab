"""Ask a service of this machine over HTTP: is it ready and if not why, its metrics, and what its API tells."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from schemas.api.status import HeldUp
from services.cli.fleet.folder import FleetRecord

TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class Readiness:
    ready: bool
    reason: str | None


def readiness(port: int) -> Readiness:
    """Ask `/readyz`, or a model server, which has no such page, `/health`. Who does not answer is not ready."""
    status, body = _get(port, "/readyz")
    if status == 404 and (status := _get(port, "/health")[0]) in (200, 503):
        return Readiness(status == 200, None if status == 200 else "can't answer now")
    if status == 0:
        return Readiness(False, "does not answer yet")
    try:
        return Readiness(status == 200, json.loads(body).get("reason"))
    except (ValueError, AttributeError):
        return Readiness(False, f"another program answers on port {port}")


def metrics_text(port: int) -> str | None:
    """The Prometheus text of `/metrics`; None if the service does not answer."""
    status, body = _get(port, "/metrics")
    return body if status == 200 else None


def at_a_glance(record: FleetRecord | None) -> Any:
    """Return what the orchestrator of the fleet that runs here says at `/v1/status`; None where it is silent."""
    return answer_at("/v1/status", record)


def answer_at(path: str, record: FleetRecord | None) -> Any:
    """Return what a route of its API answers with, decoded; None where it does not answer, or refuses."""
    port = record.port_of("orchestrator") if record else None
    status, body = _get(port, path) if port else (0, "")
    try:
        return json.loads(body) if status == 200 else None
    except ValueError:
        return None


def held_up(glance: Any) -> Iterator[tuple[str, HeldUp]]:
    """Yield candidates with their agents. An orchestrator from before there was such a thing says nothing of it."""
    for agent in glance["agents"] if glance else ():
        for one in agent.get("held_up", ()):
            yield agent["agent_id"], HeldUp.model_validate(one)


def _get(port: int, path: str) -> tuple[int, str]:
    """Status and body; status 0 where nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=TIMEOUT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except (OSError, HTTPException):
        return 0, ""
