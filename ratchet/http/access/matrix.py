"""The matrix of access: which role may call which route of a service. Pure, but for reading `matrix.toml` beside it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from starlette.routing import compile_path

from ratchet.http.access.roles import Role
from ratchet.service.errors import SettingsError

FILE = Path(__file__).with_name("matrix.toml")
EVERY = "every"
ANYONE = "anyone"
OWN = ":own"

Effect = Literal["none", "work", "change"]
"""A call's effect on the fleet, and so how it is audited."""


@dataclass(frozen=True, slots=True)
class AccessRule:
    """One route: `roles` is None where anyone may call it, without a token."""

    method: str
    path: str
    roles: frozenset[Role] | None
    effect: Effect
    pattern: re.Pattern[str]
    own_only: frozenset[Role] = frozenset()
    """Those of `roles` that reach only the tasks of their own token's subject."""

    @property
    def route(self) -> str:
        return f"{self.method} {self.path}"

    def allows(self, role: Role) -> bool:
        return self.roles is None or role in self.roles


class Matrix:
    """The rows of one service. A service that the file does not name has those of every service."""

    def __init__(self, service: str, table: Mapping[str, Any]) -> None:
        own = {} if service in (EVERY, "change", "work") else table.get(service, {})
        self.service = service
        self.rows = tuple(self._row(route, who, table) for route, who in (table[EVERY] | own).items())
        self._plain: dict[str, list[AccessRule]] = {}
        for row in self.rows:
            if "{" not in row.path:
                self._plain.setdefault(row.path, []).append(row)

    def find(self, method: str, path: str) -> AccessRule | None:
        """The row of a request."""
        return next((row for row in self._rows_of(path) if row.method == method), None)

    def methods(self, path: str) -> list[str]:
        """Return the methods of the path; empty if there is no such path."""
        return sorted(row.method for row in self._rows_of(path))

    def _rows_of(self, path: str) -> list[AccessRule]:
        """One for each method. A path without variables goes before one with: `…/promote` is no version."""
        if plain := self._plain.get(path):
            return plain
        found = [row for row in self.rows if row.pattern.match(path)]
        fewest = min((row.path.count("{") for row in found), default=0)
        return [row for row in found if row.path.count("{") == fewest]

    def check(self, routes: Iterable[str]) -> None:
        """Raises SettingsError if the application has a route that no row is about: it would be open to nobody."""
        known = {row.route for row in self.rows}
        if unknown := sorted(set(routes) - known):
            raise SettingsError(
                f"{self.service} has routes that {FILE.name} says nothing about: {', '.join(unknown)}. Add who may "
                f"call them to [{self.service}] in {FILE}"
            )

    def _row(self, route: str, who: str | list[str], table: Mapping[str, Any]) -> AccessRule:
        method, _, path = route.partition(" ")
        roles = None if who == ANYONE else frozenset(Role(role.removesuffix(OWN)) for role in who)
        own_only = frozenset(Role(role.removesuffix(OWN)) for role in who if role.endswith(OWN))
        effect: Effect = "none"
        if route in table.get("change", {}).get(self.service, ()):
            effect = "change"
        elif route in table.get("work", {}).get(self.service, ()):
            effect = "work"
        pattern, named, _ = compile_path(path)
        return AccessRule(method, named, roles, effect, pattern, own_only)


@cache
def matrix_of(service: str) -> Matrix:
    return Matrix(service, tomllib.loads(FILE.read_text(encoding="utf-8")))
