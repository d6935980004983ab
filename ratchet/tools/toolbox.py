"""`Toolbox`: the operations of one workspace, each call of which is validated, decided on, audited and bounded."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from ratchet.mcp.bounds import TooBig, bound_value
from ratchet.service.errors import RatchetError, SettingsError
from ratchet.service.telemetry import Log
from ratchet.tools.audit import ToolAudit, fingerprint, shown
from ratchet.tools.database import DATABASE
from ratchet.tools.docker import DOCKER
from ratchet.tools.files import FILES
from ratchet.tools.git import GIT
from ratchet.tools.http import HTTP
from ratchet.tools.operation import Answer, Decision, Operation, ToolError
from ratchet.tools.policy import Policy
from ratchet.tools.project_tests import TESTS
from ratchet.tools.tree import Tree
from ratchet.tools.workshop import Resolve, Runs, Workshop, resolve
from schemas.messages.base import explain

SUBJECTS = (FILES, GIT, TESTS, HTTP, DATABASE, DOCKER)
OPERATIONS: Mapping[str, Operation] = {one.name: one for subject in SUBJECTS for one in subject}
MOST_ARGUMENT_CHARACTERS = 8_000_000
OURS = "something of the tools' own failed; it is in their log, and no fault of yours: try another way"

log = Log("tools")

Ask = Callable[[Operation, Mapping[str, Any]], Awaitable[bool]]
"""Whether whoever answers for the workspace agrees to this call."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Of a call. `content` is JSON: the answer, or `{"error": …, "says": …}`."""

    ok: bool
    content: Answer
    text: str

    @classmethod
    def of(cls, answer: Answer, most: int) -> Self:
        short = bound_value(answer, most)
        if short.cut:
            short = bound_value(answer | {"shortened": list(short.cut[:5])}, most)
        return cls(True, short.value, short.text)

    @classmethod
    def failed(cls, error: ToolError) -> Self:
        content = {"error": error.kind, "says": str(error)[:2000]}
        return cls(False, content, json.dumps(content, ensure_ascii=False))


class Toolbox:
    """Raises SettingsError where the audit would lie in the workspace, which could then write it."""

    def __init__(
        self,
        root: Path,
        policy: Policy,
        audit: ToolAudit,
        *,
        ask: Ask | None = None,
        sandbox: Runs | None = None,
        resolve: Resolve = resolve,
    ) -> None:
        self.policy = policy
        self.workshop = Workshop(Tree(root), policy, sandbox=sandbox, resolve=resolve)
        self._audit = audit
        self._ask = ask
        for place in audit.places:
            if place.resolve().is_relative_to(self.workshop.tree.path):
                raise SettingsError(f"the audit {place} would lie in the workspace: name a folder outside of it")

    @property
    def operations(self) -> list[Operation]:
        """Those that the policy does not deny."""
        return [one for one in OPERATIONS.values() if self.policy.decides(one) is not Decision.DENY]

    def openai_tools(self) -> list[dict[str, Any]]:
        """For the `tools` of a chat completion."""
        return [
            {
                "type": "function",
                "function": {"name": one.name, "description": one.description, "parameters": one.schema},
            }
            for one in self.operations
        ]

    async def call(self, name: str, arguments: Mapping[str, Any] | str) -> ToolResult:
        """Whatever a model does wrong is a result that says so. Raises JournalError where the audit can't be written.

        `arguments` may be JSON as a model wrote it. A call that is cancelled is in the audit as that.
        """
        operation = OPERATIONS.get(name)
        try:
            given = _object(arguments)
            if operation is None:
                raise ToolError("arguments", _unknown(name))
            values = _validated(operation, given)
            await self._decide(operation, values)
        except ToolError as error:
            about = arguments if isinstance(arguments, str) else repr(arguments)
            await self._audit.record(
                {
                    "event": "refused",
                    "tool": name[:100],
                    "given": fingerprint(about),
                    "kind": error.kind,
                    "why": str(error)[:500],
                }
            )
            return ToolResult.failed(error)
        called = await self._audit.record(
            {"event": "called", "tool": name, "arguments": shown(given, operation.private)}
        )
        begun = time.monotonic()
        result, how = await self._run(operation, values, called)
        await self._audit.record(
            {"event": "ended", "tool": name, "call": called, **how, "wall_s": round(time.monotonic() - begun, 3)}
        )
        return result

    async def close(self) -> None:
        await self._audit.close()
        self.workshop.tree.close()

    async def _decide(self, operation: Operation, values: Mapping[str, Any]) -> None:
        decision = self.policy.decides(operation)
        if decision is Decision.DENY:
            raise ToolError("policy", f"{operation.name} is denied by the policy, as it {operation.effect.value}")
        if decision is Decision.ASK and not (self._ask is not None and await self._ask(operation, values)):
            raise ToolError(
                "policy",
                f"{operation.name} {operation.effect.value}, so it needs somebody's consent, which was not given: do "
                f'without it, or ask for {operation.name} = "allow" in the policy',
            )

    async def _run(
        self, operation: Operation, values: Mapping[str, Any], called: int
    ) -> tuple[ToolResult, dict[str, Any]]:
        seconds = self.policy.limits.seconds
        try:
            async with asyncio.timeout(seconds):
                answer = await operation.function(self.workshop, **values)
            result = ToolResult.of(answer, self.policy.limits.answer_characters)
            return result, {"how": "answered", "answer": fingerprint(result.text)}
        except ToolError as error:
            failure = error
        except TooBig:
            failure = ToolError("limit", "the answer is too big to read here: ask for less of it")
        except TimeoutError:
            failure = ToolError("limit", f"it took more than {seconds:g} s: do less at once")
        except asyncio.CancelledError:
            await asyncio.shield(
                self._audit.record({"event": "ended", "tool": operation.name, "call": called, "how": "cancelled"})
            )
            raise
        except (OSError, RatchetError) as error:
            failure = ToolError("failed", str(error)[:500])
        except Exception as error:  # a model gets a sentence, whatever it is; people get the traceback
            log.error("tool-failed", f"{operation.name}: {type(error).__name__}: {error}", exc_info=error)
            failure = ToolError("ours", OURS)
        return ToolResult.failed(failure), {"how": "failed", "kind": failure.kind, "why": str(failure)[:500]}


def _object(arguments: Any) -> dict[str, Any]:
    if isinstance(arguments, Mapping):
        return dict(arguments)
    if not isinstance(arguments, str):
        raise ToolError("arguments", "the arguments must be an object")
    if len(arguments) > MOST_ARGUMENT_CHARACTERS:
        raise ToolError("limit", f"the arguments have more than {MOST_ARGUMENT_CHARACTERS:,} characters")
    try:
        read = json.loads(arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise ToolError("arguments", f"the arguments are no JSON: {error}") from None
    if not isinstance(read, dict):
        raise ToolError("arguments", 'the arguments must be an object, such as {"path": "src/app.py"}')
    return read


def _validated(operation: Operation, given: Mapping[str, Any]) -> dict[str, Any]:
    try:
        model = operation.arguments.model_validate(given)
    except ValidationError as error:
        raise ToolError("arguments", explain(f"call of {operation.name}", error)) from None
    return {name: getattr(model, name) for name in type(model).model_fields}


def _unknown(name: str) -> str:
    near = get_close_matches(name[:100], OPERATIONS, n=3)
    return f"there is no tool {name[:100]!r}" + (f": did you mean {', '.join(near)}?" if near else "")
