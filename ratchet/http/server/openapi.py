"""The OpenAPI document of a service: FastAPI's, with the problems that routes share and who may call them. Pure."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from ratchet.http.access.matrix import Matrix
from ratchet.http.operation import Operation
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
"""Not of what changes the fleet: a change is never broken off."""
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
