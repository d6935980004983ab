"""Stands before every route: who calls, and may they? An ASGI middleware, so that it comes before the body is read.

Without keys the service listens on loopback only and everyone on this machine is operator. A page in this machine's
browser is no such person: the Host must be a loopback name (DNS rebinding), and an Origin the service's own (CSRF).
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from services.access.matrix import Matrix, Row
from services.access.roles import LOCAL, Caller
from services.api.problem import Problem
from services.settings import FleetSettings

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def caller(request: Request) -> Caller:
    """For `Depends(caller)` in a route: whose request it is."""
    found: Caller = request.scope["state"]["caller"]
    return found


CallerOf = Annotated[Caller, Depends(caller)]


class Guard:
    """Refuses with a Problem, or passes the request on with `state["caller"]` and `state["row"]`."""

    def __init__(self, app: ASGIApp, matrix: Matrix, settings: FleetSettings) -> None:
        self._app = app
        self._matrix = matrix
        self._allowed_hosts = LOOPBACK_NAMES | set(settings.api_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self._admit(scope)
        await self._app(scope, receive, send)

    def _admit(self, scope: Scope) -> None:
        row = self._row(scope["method"], scope["path"])
        scope.setdefault("state", {})["row"] = row
        if row.roles is None:
            return
        headers = Headers(scope=scope)
        self._check_site(headers)
        scope["state"]["caller"] = LOCAL

    def _row(self, method: str, path: str) -> Row:
        if row := self._matrix.find(method, path):
            return row
        if methods := self._matrix.methods(path):
            raise Problem(
                405, "Method not allowed", f"{path} takes {', '.join(methods)}", headers={"Allow": ", ".join(methods)}
            )
        raise Problem(404, "Not found", "there is no such path here: GET /openapi.json lists them all")

    def _check_site(self, headers: Headers) -> None:
        host = headers.get("host", "")
        if _hostname(f"//{host}") not in self._allowed_hosts:
            raise Problem(403, "Foreign host", "this service answers to loopback names only", "foreign-host")
        origin = headers.get("origin")
        if origin and urlsplit(origin).netloc != host and _hostname(origin) not in self._allowed_hosts:
            raise Problem(403, "Foreign origin", "pages of other sites may not call this service", "foreign-origin")


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
