"""Routes for those who run it: /healthz (the process turns), /readyz (it can do its work), /metrics (Prometheus)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, Field

from ratchet.http.access.matrix import Matrix
from ratchet.http.operation import ANYONE, Operation, operation
from ratchet.http.problem import OPENAI_PATHS, ProblemDocument, document_problem
from ratchet.http.server.limits import LONGEST_S, TIMEOUT_HEADER

BEARER = {"bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}}
EVERY_CALL = (401, 403, 422, 429, 503)
WITH_A_BODY = (400, 408, 413)
OUT_OF_TIME = (400, 504)
TIMEOUT = {
    "name": TIMEOUT_HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_S},
    "description": "Seconds to wait for the answer (504 after them); what was submitted goes on.",
}
"""The time-out that routes take, except those that change the fleet: a change is never broken off."""
STREAM = "text/event-stream"
REFERENCES = "#/components/schemas/{model}"


def document(app: FastAPI, matrix: Matrix) -> dict[str, Any]:
    """Made from the application's routes; the same routes give the same document."""
    made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    components = made.setdefault("components", {})
    components["securitySchemes"] = BEARER
    components["schemas"] = _schemas(components.get("schemas", {}))
    for path, operations in made["paths"].items():
        for method, described in operations.items():
            rule = matrix.find(method.upper(), path)
            if rule is not None and rule.operation.roles is not None:
                _describe(described, rule.operation, path)
    return made


def _schemas(found: dict[str, Any]) -> dict[str, Any]:
    problem = ProblemDocument.model_json_schema(ref_template=REFERENCES)
    own = problem.pop("$defs") | {ProblemDocument.__name__: problem}
    rest = {name: schema for name, schema in found.items() if name not in ("HTTPValidationError", "ValidationError")}
    return dict(sorted((rest | own).items()))


def _describe(operation: dict[str, Any], declared: Operation, path: str) -> None:
    statuses = {*EVERY_CALL, *(WITH_A_BODY if "requestBody" in operation else ())}
    if not declared.effect.changes:
        statuses.update(OUT_OF_TIME)
        operation["parameters"] = [*operation.get("parameters", ()), TIMEOUT]
    if "{" in path:
        statuses.add(404)
    responses = operation["responses"]
    responses.pop("422", None)
    if path.startswith(OPENAI_PATHS):
        statuses = (statuses - {422}) | ({400} if 422 in statuses else set())
    for status in statuses:
        responses.setdefault(str(status), document_problem(status))
    events = responses.get("200", {}).get("content", {}).get(STREAM, {}).get("schema", {})
    if "anyOf" in events:
        events.pop("type", None)  # FastAPI's guess at what is not JSON; the schema is that of one event
    operation["responses"] = dict(sorted(responses.items()))
    operation["security"] = [{"bearer": []}]
    operation["x-roles"] = sorted(declared.roles or ())
    if declared.title:
        operation["summary"] = declared.title
    if declared.mcp:
        operation["x-mcp"] = {"effect": declared.effect.name.lower(), **declared.mcp}


class Health(BaseModel):
    service: str
    status: str = "ok"


class Readiness(BaseModel):
    service: str
    ready: bool
    reason: str | None = Field(description="Why it can't do its work now, as a sentence; null if it can.")


def operations_router(name: str, trouble: Callable[[], str | None]) -> APIRouter:
    router = APIRouter(tags=["operations"])

    @router.get("/healthz")
    @operation(ANYONE)
    async def healthz() -> Health:
        """The process turns."""
        return Health(service=name)

    @router.get("/readyz", responses={503: {"model": Readiness, "description": "It can't do its work now."}})
    @operation(ANYONE)
    async def readyz(response: Response) -> Readiness:
        """It can do its work, or why not."""
        reason = trouble()
        response.status_code = 200 if reason is None else 503
        return Readiness(service=name, ready=reason is None, reason=reason)

    @router.head("/healthz", response_class=Response)
    @operation(ANYONE)
    async def healthz_head() -> Response:
        """Answer as GET does, without a body: for load balancers."""
        return JSONResponse((await healthz()).model_dump())

    @router.head("/readyz", response_class=Response, responses={503: {"description": "It can't do its work now."}})
    @operation(ANYONE)
    async def readyz_head(response: Response) -> Response:
        """Answer as GET does, without a body: for load balancers."""
        said = await readyz(response)
        return JSONResponse(said.model_dump(), response.status_code or 200)

    @router.get("/metrics", response_class=Response, responses={200: {"content": {CONTENT_TYPE_LATEST: {}}}})
    @operation(ANYONE)
    async def metrics() -> Response:
        """Return the metrics for Prometheus."""
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    return router
