"""A tool's call of a REST route, as a value. Pure; `rest.py` makes the call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

VARIABLE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Route:
    """A route of a service, such as `POST /v1/adapters/{agent_id}/promote`."""

    service: str
    method: str
    template: str

    def path(self, values: Mapping[str, str]) -> str:
        """The template with each value in its place, percent-encoded, so that no value leads to another route."""
        return VARIABLE.sub(lambda found: quote(values[found[1]], safe=""), self.template)

    @property
    def variables(self) -> list[str]:
        """Return the names of the variables in the template."""
        return VARIABLE.findall(self.template)

    def __str__(self) -> str:
        return f"{self.method} {self.template}"


@dataclass(frozen=True, slots=True)
class Call:
    """The values of one call.

    `wait_s` is how long (seconds) the answer may take beyond the usual, because waiting is what was asked for.
    `follow`: the route answers at once with a `Location`; ask there until `state` is one of these, or the wait ends.
    `agent_id` chooses among the agents' services.
    """

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    wait_s: float = 0.0
    follow: tuple[str, ...] = ()
    agent_id: str | None = None
