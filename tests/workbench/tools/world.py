"""A workspace with something outside of it that must not be reached, and cases: a call, and what must come of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.tools.audit import ToolAudit
from workbench.sandbox.sandbox import Sandbox
from workbench.tools.operation import Decision
from workbench.tools.policy import Policy
from workbench.tools.toolbox import OPERATIONS, Toolbox, ToolResult
from workbench.tools.workshop import Resolve, resolve

SECRET = "the-secret-outside"
EVERYTHING = dict.fromkeys(OPERATIONS, Decision.ALLOW)


class World:
    """`root` is the workspace; `outside` lies beside it and holds the secret."""

    def __init__(
        self,
        folder: Path,
        sandbox: Sandbox | None = None,
        resolve: Resolve = resolve,
        **policy: Any,
    ) -> None:
        self.root, self.outside, self.audit = folder / "root", folder / "outside", folder / "audit"
        self.anchor = folder / "anchor.json"
        for one in (self.root, self.outside):
            one.mkdir()
        (self.outside / "secret.txt").write_text(SECRET)
        self.policy = Policy.model_validate({"operations": EVERYTHING} | policy)
        self.toolbox = Toolbox(
            self.root, self.policy, ToolAudit(self.audit, self.anchor), sandbox=sandbox, resolve=resolve
        )

    async def call(self, name: str, /, **arguments: Any) -> ToolResult:
        return await self.toolbox.call(name, arguments)

    def write(self, path: str, content: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(content)

    def assert_nothing_got_out(self, result: ToolResult) -> None:
        assert SECRET not in result.text
        assert {path.name for path in self.outside.iterdir()} == {"secret.txt"}
        assert (self.outside / "secret.txt").read_text() == SECRET


@dataclass(frozen=True)
class Case:
    """`good`: what the answer has, or a check of it. `bad` and `hostile`: words of the error's kind and sentence."""

    operation: str
    kind: str
    arguments: Mapping[str, Any]
    expected: Any
    before: Callable[[World], object] = lambda world: None
    after: Callable[[World], object] = lambda world: None
    name: str = ""

    def __str__(self) -> str:
        return f"{self.operation}-{self.kind}{'-' if self.name else ''}{self.name}"


def good(operation: str, arguments: Mapping[str, Any], expected: Any, **more: Any) -> Case:
    return Case(operation, "good", arguments, expected, **more)


def bad(operation: str, arguments: Mapping[str, Any], expected: str, **more: Any) -> Case:
    return Case(operation, "bad", arguments, expected, **more)


def hostile(operation: str, arguments: Mapping[str, Any], expected: str, **more: Any) -> Case:
    return Case(operation, "hostile", arguments, expected, **more)


async def hold(case: Case, world: World) -> ToolResult:
    """Make the call of a case, and assert what it says."""
    case.before(world)
    result = await world.toolbox.call(case.operation, case.arguments)
    world.assert_nothing_got_out(result)
    if case.kind == "good":
        assert result.ok, result.text
        if callable(case.expected):
            assert case.expected(result.content), result.text
        else:
            assert case.expected.items() <= result.content.items(), result.text
    elif case.expected is None:  # it may be answered, if nothing comes of it
        pass
    else:
        kind, _, words = case.expected.partition(": ")
        assert (result.ok, result.content.get("error")) == (False, kind), result.text
        assert words in str(result.content["says"]), result.text
    case.after(world)
    assert "Traceback" not in result.text
    return result


def lines_of(audit: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (audit / "tools" / "audit.jsonl").read_text().splitlines()]
