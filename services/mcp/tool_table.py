"""The table of a service's tools: a typed function from arguments to a `Call`, and the route that the call goes to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from mcp_types import ToolAnnotations

from services.mcp.call import Call, Route

ToolFunction = Callable[..., Call]


class Effect(Enum):
    """What calling a tool does to the fleet; a client decides by it whether to ask its user first."""

    READS = "changes nothing"
    ADDS = "adds work; called twice, it may add it twice"
    SETS = "sets something that can be set back; called twice is called once"
    REPLACES = "changes which adapter answers the users"

    @property
    def reads(self) -> bool:
        return self is Effect.READS


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """`function` is pure: its signature is the tool's input schema and its docstring what a model reads."""

    function: ToolFunction
    route: Route
    title: str
    effect: Effect

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def annotations(self) -> ToolAnnotations:
        return ToolAnnotations(
            title=self.title,
            read_only_hint=self.effect.reads,
            destructive_hint=self.effect is Effect.REPLACES,
            idempotent_hint=self.effect is not Effect.ADDS,
            open_world_hint=False,
        )


class ToolTable:
    """The tools of one service, in the order they are listed in."""

    def __init__(self, service: str) -> None:
        self.service = service
        self._specs: list[ToolSpec] = []

    def tool(self, route: str, title: str, effect: Effect) -> Callable[[ToolFunction], ToolFunction]:
        """Register the function below as the tool that calls `route`, such as `GET /v1/tasks/{task_id}`."""

        def register(function: ToolFunction) -> ToolFunction:
            self._specs.append(ToolSpec(function, Route.of(self.service, route), title, effect))
            return function

        return register

    def __iter__(self) -> Iterator[ToolSpec]:
        return iter(self._specs)
