"""Refuses query parameters that a route does not have: a filter that was misspelt must not quietly filter nothing."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl

from fastapi import params
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from ratchet.http.access.matrix import AccessRule
from ratchet.http.problem import Fault, Problem

LONGEST_NAME = 40


class KnownQueries:
    """After the guard. `known`: the parameters of each route, by `METHOD /path`."""

    def __init__(self, app: ASGIApp, known: Mapping[str, frozenset[str]]) -> None:
        self._app = app
        self._known = known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["query_string"] and scope["path"].startswith("/v1/"):
            row: AccessRule = scope["state"]["row"]
            self._check(scope["query_string"], self._known.get(row.route, frozenset()))
        await self._app(scope, receive, send)

    def _check(self, query: bytes, known: frozenset[str]) -> None:
        given = {name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)}
        if unknown := sorted(given - known):
            names = ", ".join(sorted(known)) or "none"
            faults = [Fault(pointer=name[:LONGEST_NAME], detail="this route has no such parameter") for name in unknown]
            raise Problem(422, "Not valid", f"parameters of this route: {names}", "invalid", faults=faults[:20])


def query_parameters(route: BaseRoute) -> frozenset[str]:
    """Their names, as the OpenAPI document has them, which takes half a second to make."""
    fields = get_flat_params(route.dependant) if isinstance(route, APIRoute) else ()
    return frozenset(field.alias for field in fields if isinstance(field.field_info, params.Query))
