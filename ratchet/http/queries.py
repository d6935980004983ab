"""Refuses query parameters that a route does not have: a filter that was misspelt must not quietly filter nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Receive, Scope, Send

from ratchet.http.access.matrix import AccessRule
from ratchet.http.problem import Fault, Problem

LONGEST_NAME = 40

Document = Callable[[], dict[str, Any]]


class KnownQueries:
    """After the guard. `document`: the service's OpenAPI document, which names every parameter."""

    def __init__(self, app: ASGIApp, document: Document) -> None:
        self._app = app
        self._known = cache(lambda method, path: parameters(document(), method, path))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["query_string"] and scope["path"].startswith("/v1/"):
            row: AccessRule = scope["state"]["row"]
            self._check(scope["query_string"], self._known(row.method, row.path))
        await self._app(scope, receive, send)

    def _check(self, query: bytes, known: frozenset[str]) -> None:
        given = {name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)}
        if unknown := sorted(given - known):
            names = ", ".join(sorted(known)) or "none"
            faults = [Fault(pointer=name[:LONGEST_NAME], detail="this route has no such parameter") for name in unknown]
            raise Problem(422, "Not valid", f"parameters of this route: {names}", "invalid", faults=faults[:20])


def parameters(document: dict[str, Any], method: str, path: str) -> frozenset[str]:
    """Names of the query parameters of a route."""
    operation = document["paths"].get(path, {}).get(method.lower(), {})
    return frozenset(one["name"] for one in operation.get("parameters", ()) if one["in"] == "query")
