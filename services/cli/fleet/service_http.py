"""Ask a service of this machine over HTTP: is it ready and if not why, and its metrics."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class Readiness:
    ready: bool
    reason: str | None


def readiness(port: int) -> Readiness:
    """What `/readyz` says. A service that does not answer is not ready, and that is the reason."""
    status, body = _get(port, "/readyz")
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


def answer_of(port: int, path: str) -> Any:
    """What a route of the API answers with, decoded; None if the service does not answer, or refuses."""
    status, body = _get(port, path)
    try:
        return json.loads(body) if status == 200 else None
    except ValueError:
        return None


def _get(port: int, path: str) -> tuple[int, str]:
    """Status and body; status 0 where nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=TIMEOUT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except (OSError, HTTPException):
        return 0, ""
