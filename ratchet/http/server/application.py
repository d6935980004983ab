"""The HTTP application of a service: its routes, those every service has, and what stands before all of them.

From outside to inside: HEAD as GET, problems (every error becomes a document), the audit of refusals, the limits of all
together, the guard (who may), the limits of each caller and of work, readiness (503 while the service is starting,
draining or a standby), the audit of changes, the routes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, FastAPI, params
from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ratchet.http.access.audit import AuditLog
from ratchet.http.access.audited import AuditChanges, AuditRefusals, Refusals
from ratchet.http.access.guard import Guard, token_check
from ratchet.http.access.matrix import AccessRule, matrix_of
from ratchet.http.operation import ANYONE, operation
from ratchet.http.problem import RETRY_AFTER_S, Fault, Problem, problem_of, problem_of_http, problem_of_validation
from ratchet.http.server.limits import Body, ConcurrencyLimit, Deadline, RateLimit, is_work, of_the_api, places_of_work
from ratchet.http.server.operations import document, operations_router
from ratchet.mcp import endpoint as mcp
from ratchet.service.errors import FAULTS
from ratchet.service.settings import FleetSettings
from ratchet.service.telemetry import Log

log = Log("api")

Trouble = Callable[[], str | None]

VERSION = "1"
API_PREFIX = "/v1/"
DESCRIPTION = (
    "Beyond loopback every call but the health checks needs a header `Authorization: Bearer <token>`. Errors are "
    "problem documents (RFC 9457). The header X-Request-Timeout, in seconds, bounds the wait for an answer (504)."
)


def application(
    name: str, routers: Sequence[APIRouter], settings: FleetSettings, trouble: Trouble, phase: Trouble = lambda: None
) -> FastAPI:
    """`trouble`: why the service can't do its work; `phase`: why it takes no calls at all, such as while it starts.

    Raises SettingsError for a route that is not declared as an operation, and for a service that would listen beyond
    loopback without keys to check tokens with.
    """
    audit = AuditLog(settings.audit_dir, name)
    refusals = Refusals(audit.note)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        refusals.close()
        await audit.close()

    app = FastAPI(
        title=f"Ratchet {name}",
        version=VERSION,
        description=DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    for router in (operations_router(name, trouble), *routers):
        app.router.routes.extend(router.routes)  # include_router would take every route apart once more
    app.router.routes.append(Route(mcp.PATH, mcp.McpEndpoint(name, app, settings.max_message_bytes), methods=["POST"]))
    app.router.routes.append(Route("/openapi.json", _openapi_of(app), methods=["GET"]))
    app.add_exception_handler(HTTPException, _http_problem)
    app.add_exception_handler(RequestValidationError, _validation_problem)
    routes = routes_of(app)
    matrix = matrix_of(name, routes)
    app.openapi = cache(partial(document, app, matrix))  # type: ignore[method-assign]
    guard = Middleware(Guard, matrix=matrix, tokens=token_check(settings), hosts=settings.api_hosts)
    from_outside_in = [
        Middleware(Heads),
        Middleware(Problems),
        Middleware(AuditRefusals, refusals=refusals),
        Middleware(ConcurrencyLimit, most=settings.api_requests_at_once, counts=of_the_api),
        guard,
        Middleware(RateLimit, per_s=settings.api_requests_per_s),
        Middleware(ConcurrencyLimit, most=places_of_work(settings.api_requests_at_once), counts=is_work),
        Middleware(Readiness, phase=phase),
        Middleware(KnownQueries, known={name: query_parameters(route) for name, route in routes.items()}),
        Middleware(Body, most_bytes=settings.max_message_bytes),
        Middleware(Deadline),
        Middleware(AuditChanges, audit=audit),
    ]
    app.user_middleware = from_outside_in
    return app


def routes_of(app: FastAPI) -> dict[str, BaseRoute]:
    """Map `METHOD /path` to the routes. Mounted applications are left out: the guard knows them by their paths.

    A HEAD that Starlette adds to a GET by itself is none.
    """
    return {
        f"{method} {compile_path(route.path)[1]}": route
        for route in app.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"} or route.methods or ()
    }


def _openapi_of(app: FastAPI) -> Callable[[Request], Awaitable[Response]]:
    """Written once: it is long, and anyone may ask for it as often as they like."""

    @cache
    def encode() -> bytes:
        return json.dumps(app.openapi(), ensure_ascii=False, separators=(",", ":")).encode()

    @operation(ANYONE)
    async def openapi(_: Request) -> Response:
        return Response(encode(), media_type="application/json")

    return openapi


class Heads:
    """Answers HEAD wherever GET is answered, with what GET would answer but its body: of a stream, too, at once."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        begins: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        async def note_start(message: Message) -> None:
            if not begins.done():
                begins.set_result(message)

        got = asyncio.ensure_future(self._app({**scope, "method": "GET"}, receive, note_start))
        try:
            await asyncio.wait((got, begins), return_when=asyncio.FIRST_COMPLETED)
            if not begins.done():
                await got
            await send(begins.result())
            await send({"type": "http.response.body", "body": b""})
        finally:
            got.cancel()
            await asyncio.gather(got, return_exceptions=True)


class Problems:
    """Outermost: whatever is raised before an answer began becomes one. A fault of ours is logged, not told."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def send_and_note(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except Exception as error:
            if begun:
                raise
            await self._problem(error, scope).response(scope["path"])(scope, receive, send)

    def _problem(self, error: Exception, scope: Scope) -> Problem:
        if isinstance(error, FAULTS):
            return problem_of(error)
        log.error("fault", f"{scope['method']} failed: {type(error).__name__}", exc_info=error)
        return Problem(500, "A fault of ours", "it was logged; trying again may help", "fault")


class Readiness:
    """No call of the API while the service is not at work."""

    def __init__(self, app: ASGIApp, phase: Trouble) -> None:
        self._app = app
        self._phase = phase

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(API_PREFIX) and (phase := self._phase()):
            raise Problem(503, "Not at work", phase, "not-at-work", {"Retry-After": str(RETRY_AFTER_S)})
        await self._app(scope, receive, send)


async def _http_problem(request: Request, error: Any) -> Response:
    return problem_of_http(error).response(request.url.path)


async def _validation_problem(request: Request, error: Any) -> Response:
    return problem_of_validation(error, request.headers.get("content-type", "")).response(request.url.path)


LONGEST_NAME = 40


class KnownQueries:
    """Refuses query parameters that a route does not have: a filter that was misspelt must not quietly filter nothing.

    After the guard. `known`: the parameters of each route, by `METHOD /path`.
    """

    def __init__(self, app: ASGIApp, known: Mapping[str, frozenset[str]]) -> None:
        self._app = app
        self._known = known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["query_string"] and scope["path"].startswith("/v1/"):
            rule: AccessRule = scope["state"]["rule"]
            self._check(scope["query_string"], self._known.get(rule.route, frozenset()))
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
