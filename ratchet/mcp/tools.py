"""The tools of a service, made from its OpenAPI document: each operation that names one (`x-mcp`) is a tool. Pure.

A tool's arguments are the parameters of the route and the fields of its body, side by side; headers are left out. What
an argument must be is checked by the API, which says in a sentence what is wrong with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ratchet.http.operation import Effect
from ratchet.mcp.rest import Call, CallFailed, Route

JSON = "application/json"
REFERENCE = re.compile(r"#/components/schemas/([\w.-]+)")
SHAPE = {
    "type",
    "properties",
    "patternProperties",
    "$defs",
    "$ref",
    "items",
    "anyOf",
    "oneOf",
    "enum",
    "const",
    "additionalProperties",
}
PAGE = 20
"""Items on a page unless a caller asks for more: an answer has at most 48,000 characters."""
LONGEST_FOLLOW_S = 3600
FOLLOW_S = {
    "description": "Seconds to wait for its end; 0 returns at once.",
    "type": "number",
    "default": 0,
    "minimum": 0,
    "maximum": LONGEST_FOLLOW_S,
}
WHICH_AGENT = {"description": "Which agent; the first one if absent.", "type": "string"}


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool. `query` are the names of the route's parameters, `given` the arguments that have a default here."""

    route: Route
    name: str
    title: str
    description: str
    roles: frozenset[str]
    effect: Effect
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    query: frozenset[str]
    has_body: bool
    given: Mapping[str, Any]
    answer_s: float
    follow: tuple[str, ...]
    chooses_agent: bool

    def call(self, arguments: Mapping[str, Any]) -> Call:
        """Return the call for a tool's arguments. Raises CallFailed if one is missing or is not an argument of it."""
        known = self.input_schema["properties"]
        faults = [f"{name} is missing" for name in self.input_schema["required"] if arguments.get(name) is None]
        faults += [f"{name} is not known here" for name in arguments if name not in known]
        patterns = {name: known[name].get("pattern", "") for name in self.route.variables if name in arguments}
        faults += [
            f"{name} must match {it}" for name, it in patterns.items() if not re.search(it, str(arguments[name]))
        ]
        if faults:
            raise CallFailed(f"not a valid call of {self.name}: {'; '.join(faults)}")
        rest = {**self.given, **{name: self._read(known[name], value) for name, value in arguments.items()}}
        rest = {name: value for name, value in rest.items() if value is not None}
        agent_id = rest.pop("agent_id", None) if self.chooses_agent else None
        wait_s = _seconds(rest.pop("wait_s", 0.0) if self.follow else rest.get("wait_s", self.answer_s))
        path = {name: str(rest.pop(name)) for name in self.route.variables}
        query = {name: rest.pop(name) for name in self.query & rest.keys()}
        return Call(path, query, rest if self.has_body else None, wait_s, self.follow, agent_id)

    def _read(self, schema: dict[str, Any], value: Any) -> Any:
        """Read a list or an object that came as JSON in a text, as some clients send them, where no text is allowed."""
        if not isinstance(value, str) or _takes_text(schema, self.input_schema["$defs"]):
            return value
        try:
            read = json.loads(value)
        except (ValueError, RecursionError):
            return value
        return read if isinstance(read, list | dict) else value


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the method, the path and the description of each operation that is a tool or a resource of MCP."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if "x-mcp" in operation:
                yield method.upper(), path, operation


def tools_of(service: str, document: Mapping[str, Any], *, chooses_agent: bool = False) -> list[ToolSpec]:
    """Return the tools of a service. `chooses_agent`: they take an `agent_id`, for the server speaks for several."""
    components = document["components"]["schemas"]
    return [
        _tool(Route(service, method, path), operation, components, chooses_agent)
        for method, path, operation in operations(document)
        if "tool" in operation["x-mcp"]
    ]


def _tool(route: Route, operation: dict[str, Any], components: dict[str, Any], chooses_agent: bool) -> ToolSpec:
    mcp = operation["x-mcp"]
    effect = Effect[mcp["effect"].upper()]
    parameters = {one["name"]: one for one in operation.get("parameters", ()) if one["in"] in ("path", "query")}
    body = _body(operation, components)
    fields = {name: {"description": one.get("description"), **one["schema"]} for name, one in parameters.items()}
    fields |= body.get("properties", {})
    required = [name for name, one in parameters.items() if one.get("required")] + body.get("required", [])
    given = dict(mcp.get("given", {}))
    if isinstance(fields.get("limit", {}).get("default"), int):
        given["limit"] = PAGE
    shown = {name: one | {"default": given[name]} if name in given else one for name, one in fields.items()}
    if shown.pop("metadata", None):
        given["metadata"] = {"source": "mcp"}
    shown |= {"wait_s": FOLLOW_S} if mcp.get("follow") else {}
    shown |= {"agent_id": WHICH_AGENT} if chooses_agent else {}
    arguments = {
        "type": "object",
        "properties": {name: one for name, one in shown.items() if name not in mcp.get("hides", ())},
        "required": required,
        "additionalProperties": False,
    }
    return ToolSpec(
        route=route,
        name=mcp["tool"],
        title=operation["summary"],
        description=" ".join(operation["description"].split())
        + (" Ask your user first." if effect is Effect.REPLACES else ""),
        roles=frozenset(operation["x-roles"]),
        effect=effect,
        input_schema=_prune(_with_definitions(arguments, components), lambda key: key != "title"),
        output_schema=_output_schema(operation, components),
        query=frozenset(name for name, one in parameters.items() if one["in"] == "query"),
        has_body=bool(body),
        given=given,
        answer_s=mcp.get("answer_s", 0.0),
        follow=tuple(mcp.get("follow", ())),
        chooses_agent=chooses_agent,
    )


def _body(operation: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    if "requestBody" not in operation:
        return {}
    return _resolve(operation["requestBody"]["content"][JSON]["schema"], components)


def _output_schema(operation: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """A schema with an object as its root, as clients want it. The API's document says what fields mean."""
    answers = [
        operation["responses"][status]["content"][JSON]["schema"]
        for status in ("200", "201", "202")
        if JSON in operation["responses"].get(status, {}).get("content", {})
    ]
    root = {"anyOf": answers} if len(answers) > 1 else _resolve(answers[0], components)
    return {"type": "object", **_prune(_with_definitions(root, components), SHAPE.__contains__)}


def _resolve(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    named = REFERENCE.fullmatch(schema.get("$ref", ""))
    found: dict[str, Any] = components[named[1]] if named else schema
    return found


def _with_definitions(root: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """The schema with all that it refers to, directly or not, as its `$defs`."""
    found: dict[str, Any] = {}
    waiting = set(REFERENCE.findall(json.dumps(root)))
    while waiting:
        name = waiting.pop()
        found[name] = components[name]
        waiting |= set(REFERENCE.findall(json.dumps(found[name]))) - found.keys()
    whole: dict[str, Any] = json.loads(REFERENCE.sub(r"#/$defs/\1", json.dumps(root | {"$defs": found})))
    return whole


def _prune(schema: Any, keeps: Callable[[str], bool], *, named: bool = False) -> Any:
    """The schema with the keywords that `keeps` is true of. `named`: its keys are names of fields or definitions."""
    if isinstance(schema, list):
        return [_prune(one, keeps) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if named or keeps(key)}
    return {
        k: _prune(v, keeps, named=not named and k in ("properties", "patternProperties", "$defs"))
        for k, v in kept.items()
    }


def _takes_text(schema: dict[str, Any], definitions: dict[str, Any]) -> bool:
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    return "string" in schema.get("type", ()) or any(_takes_text(one, definitions) for one in schema.get("anyOf", ()))


def _seconds(value: Any) -> float:
    """0 for what is no number: the API says so."""
    return min(max(value, 0.0), LONGEST_FOLLOW_S) if isinstance(value, int | float) else 0.0
