"""An operation: a function whose signature is its JSON Schema and whose docstring is what a model reads."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model

from workbench.errors import WorkbenchError

Answer = dict[str, Any]
"""JSON."""
Function = Callable[..., Awaitable[Answer]]

WorkspacePath = Annotated[
    str,
    StringConstraints(min_length=1, max_length=4096),
    Field(description="Path relative to the workspace, such as src/app.py; no symbolic links, no `..`."),
]
Text = Annotated[str, StringConstraints(max_length=4_000_000)]
Count = Annotated[int, Field(ge=1, le=10_000)]


class ToolError(WorkbenchError):
    """A refusal of what a model did or asked for: the sentence says what was wrong and what to do.

    `kind` is one of arguments, policy, not_found, conflict, limit, failed, ours.
    """

    def __init__(self, kind: str, says: str) -> None:
        super().__init__(says)
        self.kind = kind


def object_of(text: str | bytes) -> Answer:
    """The JSON object that a program wrote; empty where it wrote none."""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


class Decision(Enum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Effect(Enum):
    """The effect of an operation, by which a policy decides that does not name it."""

    READS = "reads the workspace"
    WRITES = "writes inside the workspace"
    RUNS = "runs the project's own code, in a sandbox"
    DESTROYS = "destroys what may not be had back"
    REACHES = "reads what is outside of the workspace"
    CHANGES = "changes what is outside of the workspace"

    @property
    def decision(self) -> Decision:
        match self:
            case Effect.READS | Effect.WRITES | Effect.RUNS:
                return Decision.ALLOW
            case Effect.DESTROYS | Effect.REACHES:
                return Decision.ASK
            case Effect.CHANGES:
                return Decision.DENY

    @property
    def is_open(self) -> bool:
        return self in (Effect.REACHES, Effect.CHANGES)


@dataclass(frozen=True, slots=True)
class Operation:
    name: str
    subject: str
    effect: Effect
    function: Function
    arguments: type[BaseModel]
    private: frozenset[str]
    """Arguments of which the audit keeps a sum and a size, not the text."""

    @property
    def description(self) -> str:
        return " ".join((self.function.__doc__ or "").split())

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments, without pydantic's titles."""
        schema: dict[str, Any] = _without_titles(self.arguments.model_json_schema())
        return schema


class Subject:
    """The operations of one subject, in the order they are listed in."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._operations: list[Operation] = []

    def operation(self, effect: Effect, *, private: tuple[str, ...] = ()) -> Callable[[Function], Function]:
        """Register the function below by its name. Its first parameter is the workshop, the rest are arguments."""

        def register(function: Function) -> Function:
            self._operations.append(
                Operation(function.__name__, self.name, effect, function, _model(function), frozenset(private))
            )
            return function

        return register

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._operations)


def _model(function: Function) -> type[BaseModel]:
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
        fields[name] = (hints[name], ... if parameter.default is inspect.Parameter.empty else parameter.default)
    config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)
    return create_model(function.__name__, __config__=config, **fields)


def _without_titles(schema: Any) -> Any:
    """`properties` may have one that is called title; that one stays."""
    if isinstance(schema, list):
        return [_without_titles(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {key: value for key, value in schema.items() if key != "title" or not isinstance(value, str)}
    return {
        key: {name: _without_titles(one) for name, one in value.items()}
        if key == "properties"
        else _without_titles(value)
        for key, value in kept.items()
    }
