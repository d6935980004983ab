"""The output schema of a tool, taken from the OpenAPI document: what its route answers with when all goes well.

So the REST API and the tools can't disagree. Error answers are no tool results and are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from services.mcp.call import Route

COMPONENTS = "#/components/schemas/"
DEFINITIONS = "#/$defs/"

Schema = dict[str, Any]


def output_schema(document: Mapping[str, Any], route: Route) -> Schema:
    """A JSON Schema (2020-12) with an object as its root. Raises LookupError for a route that answers with no JSON."""
    answers = _answers(document, route)
    definitions = _definitions(document, answers)
    root = _resolved(answers[0], definitions) if len(answers) == 1 else {"anyOf": answers}
    schema = {"type": "object", **_local(root)}
    return schema | {"$defs": _local(definitions)} if definitions else schema


def _answers(document: Mapping[str, Any], route: Route) -> list[Schema]:
    operation = document.get("paths", {}).get(route.template, {}).get(route.method.lower())
    if operation is None:
        raise LookupError(f"the OpenAPI document of {route.service} has no {route}")
    schemas = [
        answer["content"]["application/json"]["schema"]
        for status, answer in sorted(operation["responses"].items())
        if status.startswith("2") and "application/json" in answer.get("content", {})
    ]
    unique = list({json.dumps(schema, sort_keys=True): schema for schema in schemas}.values())
    if not unique:
        raise LookupError(f"{route} of {route.service} answers with no JSON that its OpenAPI document describes")
    return unique


def _definitions(document: Mapping[str, Any], roots: list[Schema]) -> dict[str, Schema]:
    """Each component that the answers mention, directly or through another."""
    components = document.get("components", {}).get("schemas", {})
    found: dict[str, Schema] = {}
    waiting = [name for root in roots for name in _mentioned(root)]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = components[name]
            waiting.extend(_mentioned(components[name]))
    return dict(sorted(found.items()))


def _mentioned(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith(COMPONENTS):
            yield reference.removeprefix(COMPONENTS)
        for inner in schema.values():
            yield from _mentioned(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _mentioned(inner)


def _resolved(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """A bare reference at the root becomes what it refers to: clients want an object there."""
    reference = schema.get("$ref")
    return definitions[reference.removeprefix(COMPONENTS)] if isinstance(reference, str) else schema


def _local(schema: Any) -> Any:
    """References into the document become references into the schema's own `$defs`."""
    if isinstance(schema, str):
        return schema.replace(COMPONENTS, DEFINITIONS) if schema.startswith(COMPONENTS) else schema
    if isinstance(schema, Mapping):
        return {key: _local(inner) for key, inner in schema.items()}
    if isinstance(schema, list):
        return [_local(inner) for inner in schema]
    return schema
