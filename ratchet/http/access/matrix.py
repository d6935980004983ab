"""The matrix of access: which role may call which route of a service, as the routes declare it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from starlette.routing import BaseRoute, Route, compile_path

from ratchet.http.access.roles import Role
from ratchet.http.operation import Operation, operation_of
from ratchet.service.errors import SettingsError


@dataclass(frozen=True, slots=True)
class AccessRule:
    """One route, and what was declared of it."""

    method: str
    path: str
    pattern: re.Pattern[str]
    operation: Operation

    @property
    def route(self) -> str:
        return f"{self.method} {self.path}"

    def allows(self, role: Role) -> bool:
        return self.operation.roles is None or role in self.operation.roles


class Matrix:
    """The rules of one service."""

    def __init__(self, rules: Iterable[AccessRule]) -> None:
        self.rules = tuple(rules)
        self._plain: dict[str, list[AccessRule]] = {}
        for rule in self.rules:
            if "{" not in rule.path:
                self._plain.setdefault(rule.path, []).append(rule)

    def find(self, method: str, path: str) -> AccessRule | None:
        """Return the rule of a request."""
        return next((rule for rule in self._rules_of(path) if rule.method == method), None)

    def methods(self, path: str) -> list[str]:
        """Return the methods of the path; empty if there is no such path."""
        return sorted(rule.method for rule in self._rules_of(path))

    def _rules_of(self, path: str) -> list[AccessRule]:
        """One for each method. A path without variables goes before one with: `…/promote` is no version."""
        if plain := self._plain.get(path):
            return plain
        found = [rule for rule in self.rules if rule.pattern.match(path)]
        fewest = min((rule.path.count("{") for rule in found), default=0)
        return [rule for rule in found if rule.path.count("{") == fewest]


def matrix_of(service: str, routes: Mapping[str, BaseRoute]) -> Matrix:
    """Return the matrix of a service's routes, by `METHOD /path`.

    Raises SettingsError if nobody was named for one of them: it would be open to nobody, or to everybody.
    """
    rules, undeclared = [], []
    for name, route in routes.items():
        assert isinstance(route, Route)
        method, _, _ = name.partition(" ")
        pattern, path, _ = compile_path(route.path)
        if (declared := operation_of(route.endpoint)) is None:
            undeclared.append(name)
        else:
            rules.append(AccessRule(method, path, pattern, declared))
    if undeclared:
        raise SettingsError(
            f"{service} has routes that nobody was named for: {', '.join(sorted(undeclared))}. Put a line `@operation` "
            f"below the line of each (ratchet/http/operation.py)"
        )
    return Matrix(rules)
