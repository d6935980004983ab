"""A tool's call of a REST route, as a value. Pure; `rest.py` makes the call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from schemas.messages.task import Prompt

VARIABLE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Route:
    """A route of a service, such as `POST /v1/adapters/{agent_id}/promote`."""

    service: str
    method: str
    template: str

    @classmethod
    def parse(cls, service: str, text: str) -> Route:
        method, template = text.split(" ")
        return cls(service, method, template)

    def path(self, values: Mapping[str, str]) -> str:
        """The template with each value in its place, percent-encoded, so that no value leads to another route."""
        return VARIABLE.sub(lambda found: quote(values[found[1]], safe=""), self.template)

    @property
    def example(self) -> str:
        """A path that is this route's, for asking the role matrix."""
        return VARIABLE.sub("x", self.template)

    def __str__(self) -> str:
        return f"{self.method} {self.template}"


@dataclass(frozen=True, slots=True)
class Follow:
    """The route answers at once with a `Location`: ask there until `state` is one of `final`, or the wait ends."""

    final: frozenset[str]


@dataclass(frozen=True, slots=True)
class Call:
    """The values of one call; what is None in `query` and `body` is left out.

    `wait_s` is how long (seconds) the answer may take beyond the usual, because waiting is what was asked for;
    `awaited` says what for, to whoever follows the progress. `agent_id` chooses among the agents' services.
    """

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str | int | float | None] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    wait_s: float = 0.0
    awaited: str = ""
    agent_id: str | None = None
    follow: Follow | None = None

    @property
    def given_query(self) -> dict[str, str | int | float]:
        return {name: value for name, value in self.query.items() if value is not None}

    @property
    def given_body(self) -> dict[str, Any] | None:
        return None if self.body is None else {name: value for name, value in self.body.items() if value is not None}


def prompt_json(prompt: Prompt) -> str | list[dict[str, Any]]:
    """A prompt as it is in a body."""
    return prompt if isinstance(prompt, str) else [message.model_dump() for message in prompt]
