"""`Toolbox`: the operations of one workspace, each call of which is validated, decided on, audited and bounded."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol, Self

from pydantic import ValidationError

from schemas.messages.base import explain
from workbench.errors import PolicyError, WorkbenchError
from workbench.tools.bounds import TooBig, bound_value
from workbench.tools.code import CODE
from workbench.tools.database import DATABASE
from workbench.tools.docker import DOCKER
from workbench.tools.files import FILES
from workbench.tools.git import GIT
from workbench.tools.http import HTTP
from workbench.tools.operation import Answer, Decision, Operation, ToolError
from workbench.tools.policy import Policy
from workbench.tools.project_tests import TESTS
from workbench.tools.tree import Tree
from workbench.tools.workshop import Resolve, Runs, Workshop, resolve

SUBJECTS = (FILES, GIT, TESTS, CODE, HTTP, DATABASE, DOCKER)
OPERATIONS: Mapping[str, Operation] = {one.name: one for subject in SUBJECTS for one in subject}
MOST_ARGUMENT_CHARACTERS = 8_000_000
OURS = "something of the tools' own failed; it is in their log, and no fault of yours: try another way"

SHOWN = 200
"""Characters of a text among the arguments; of a longer one its sum and size are kept."""

log = logging.getLogger("tools")

Ask = Callable[[Operation, Mapping[str, Any]], Awaitable[bool]]
"""A question to who answers for the workspace: whether they agree to this call."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call. `content` is JSON: the answer, or `{"error": …, "says": …}`."""

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
    def of_error(cls, error: ToolError) -> Self:
        content = {"error": error.kind, "says": str(error)[:2000]}
        return cls(False, content, json.dumps(content, ensure_ascii=False))


class Audit(Protocol):
    """The audit in which each call is written down, before anything is done."""

    @property
    def places(self) -> Sequence[Path]:
        """The folders and files it writes to."""

    async def record(self, entry: Mapping[str, Any]) -> int:
        """Return the entry's number once it is on disk; raise what the caller of the toolbox gets."""

    async def close(self) -> None: ...


class Toolbox:
    """Raises PolicyError where the audit would lie in the workspace, which could then write it."""

    def __init__(
        self,
        root: Path,
        policy: Policy,
        audit: Audit,
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
                raise PolicyError(f"the audit {place} would lie in the workspace: name a folder outside of it")

    @property
    def operations(self) -> list[Operation]:
        """Those that the policy does not deny."""
        return [one for one in OPERATIONS.values() if self.policy.decides(one) is not Decision.DENY]

    def openai_tools(self) -> list[dict[str, Any]]:
        """Return the operations for the `tools` of a chat completion."""
        return [
            {
                "type": "function",
                "function": {"name": one.name, "description": one.description, "parameters": one.schema},
            }
            for one in self.operations
        ]

    async def call(self, name: str, arguments: Mapping[str, Any] | str) -> ToolResult:
        """Call an operation. A model's mistake is a result that says so. Raises what the audit raises
        where it can't be written.

        `arguments` may be JSON as a model wrote it. A call that is cancelled is in the audit as that.
        """
        operation = OPERATIONS.get(name)
        try:
            given = _object(arguments)
            if operation is None:
                raise ToolError("arguments", _unknown(name))
            values = _validate(operation, given)
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
            return ToolResult.of_error(error)
        called = await self._audit.record(
            {"event": "called", "tool": name, "arguments": audited_arguments(given, operation.private)}
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
        except (OSError, WorkbenchError) as error:
            failure = ToolError("failed", str(error)[:500])
        except Exception as error:  # a model gets a sentence, whatever it is; people get the traceback
            text = f"{operation.name}: {type(error).__name__}: {error}"
            log.error("%s", text, exc_info=error, extra={"action": "tool-failed"})
            failure = ToolError("ours", OURS)
        return ToolResult.of_error(failure), {"how": "failed", "kind": failure.kind, "why": str(failure)[:500]}


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


def _validate(operation: Operation, given: Mapping[str, Any]) -> dict[str, Any]:
    try:
        model = operation.arguments.model_validate(given)
    except ValidationError as error:
        raise ToolError("arguments", explain(f"call of {operation.name}", error)) from None
    return {name: getattr(model, name) for name in type(model).model_fields}


def _unknown(name: str) -> str:
    near = get_close_matches(name[:100], OPERATIONS, n=3)
    return f"there is no tool {name[:100]!r}" + (f": did you mean {', '.join(near)}?" if near else "")


def fingerprint(text: str | bytes) -> dict[str, Any]:
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return {"sha256": hashlib.sha256(raw).hexdigest(), "bytes": len(raw)}


def audited_arguments(arguments: Mapping[str, Any], private: frozenset[str]) -> dict[str, Any]:
    """Arguments as the audit has them. What is private or long is there as a sum and a size."""
    return {name: _audited_value(value, hide=name in private) for name, value in arguments.items()}


def _audited_value(value: Any, *, hide: bool) -> Any:
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        text, hide = repr(value), True
    return fingerprint(text) if hide or len(text) > SHOWN or not text.isprintable() else value
