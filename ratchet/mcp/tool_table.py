"""The table of a service's tools: a typed function from arguments to a `Call`, and the route that the call goes to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from mcp_types import ToolAnnotations
from pydantic import TypeAdapter

from ratchet.mcp.call import Call, Route

ToolFunction = Callable[..., Call]


KEPT = ("type", "properties", "$defs", "$ref", "items", "anyOf", "oneOf", "enum", "const", "additionalProperties")


class Effect(Enum):
    """An effect of calling a tool on the fleet; a client decides by it whether to ask its user first."""

    READS = "changes nothing"
    ADDS = "adds work; called twice, it may add it twice"
    SETS = "sets something that can be set back; called twice is called once"
    REPLACES = "changes which adapter answers the users"
    REMOVES = "puts something away; called twice is called once"

    @property
    def reads(self) -> bool:
        return self is Effect.READS


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """`function` is pure: its signature is the tool's input schema and its docstring what a model reads.

    `answers` is the model, or the union of models, of what the route answers with when all goes well.
    """

    function: ToolFunction
    route: Route
    answers: Any
    title: str
    effect: Effect

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def description(self) -> str:
        return " ".join((self.function.__doc__ or "").split())

    @property
    def output_schema(self) -> dict[str, Any]:
        """A JSON Schema with an object as its root, as clients want it. The API's document says what fields mean."""
        return {"type": "object", **_shape(TypeAdapter(self.answers).json_schema(mode="serialization"))}

    @property
    def annotations(self) -> ToolAnnotations:
        return ToolAnnotations(
            title=self.title,
            read_only_hint=self.effect.reads,
            destructive_hint=self.effect in (Effect.REPLACES, Effect.REMOVES),
            idempotent_hint=self.effect is not Effect.ADDS,
            open_world_hint=False,
        )


def _shape(schema: Any, *, named: bool = False) -> Any:
    """The schema without what describes or bounds a field. `named`: its keys are names of fields or of definitions."""
    if isinstance(schema, list):
        return [_shape(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if named or key in KEPT}
    return {key: _shape(value, named=not named and key in ("properties", "$defs")) for key, value in kept.items()}


class ToolTable:
    """The tools of one service, in the order they are listed in."""

    def __init__(self, service: str) -> None:
        self.service = service
        self._specs: list[ToolSpec] = []

    def tool(self, route: str, answers: Any, title: str, effect: Effect) -> Callable[[ToolFunction], ToolFunction]:
        """Register the function below as the tool that calls `route`, such as `GET /v1/tasks/{task_id}`."""

        def register(function: ToolFunction) -> ToolFunction:
            self._specs.append(ToolSpec(function, Route.parse(self.service, route), answers, title, effect))
            return function

        return register

    def __iter__(self) -> Iterator[ToolSpec]:
        return iter(self._specs)
