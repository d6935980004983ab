"""The tools of a program that is recorded: the recorder answers a call that was made before, and keeps others.

So a program that runs again finds its tools' answers, and the files that they left, without that anything is done
twice. A person is asked in the same way: the program ends there, and is run again with the answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import httpx
from pydantic import Field, StringConstraints, ValidationError

from ratchet.service.errors import JournalError
from schemas.messages.base import explain
from workbench.tools.changes import Changes, Look, changes_between, look_at, put
from workbench.tools.names import TOOL_NAMES
from workbench.tools.operation import Answer, Decision, Effect, Operation, Subject, ToolError
from workbench.tools.policy import Policy
from workbench.tools.toolbox import OPERATIONS, Toolbox, ToolResult
from workbench.tools.workshop import Workshop

ASKED_S = 600.0
MOST_PATHS = 100
"""Paths of one call that the audit names."""
PERSON = Subject("person")


@PERSON.operation(Effect.READS)
async def ask_person(
    workshop: Workshop,
    question: Annotated[str, StringConstraints(min_length=1, max_length=8000)],
    options: Annotated[list[str], Field(max_length=16, description="Answers to choose from, if there are such.")] = [],  # noqa: B006
) -> Answer:
    """Ask a person who answers for this task, and wait for the answer: a decision (approve, reject, edit or, where
    nobody answered, expired) and a text. Ask only what you can't find out yourself."""
    raise ToolError("ours", "nobody can be asked here")


ASK_PERSON = next(iter(PERSON))


class RecordedAudit:
    """An audit that the recorder keeps, outside of the sandbox."""

    places: Sequence[Path] = ()

    def __init__(self, recorder: httpx.AsyncClient) -> None:
        self._recorder = recorder

    async def record(self, entry: Mapping[str, Any]) -> int:
        """Return the line's number once the recorder has it. Raises JournalError: then nothing is to be done."""
        try:
            content = json.dumps(entry, ensure_ascii=False).encode("utf-8", "replace")
            reply = await self._recorder.post("tool_audit", content=content, timeout=ASKED_S)
            return int(reply.raise_for_status().json()["number"])
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise JournalError(f"the recorder does not take the audit: {error}") from None

    async def close(self) -> None:
        """It ends with the rollout."""


class RecordedToolbox(Toolbox):
    """`recorder`: a client whose base URL is the recorder's and who has the rollout's key."""

    def __init__(self, root: Path, policy: Policy, *, recorder: httpx.AsyncClient) -> None:
        super().__init__(root, policy, RecordedAudit(recorder))
        self._root = root
        self._recorder = recorder
        self._calling = asyncio.Lock()

    @property
    def operations(self) -> list[Operation]:
        """Those that the policy does not deny, and the question to a person."""
        offered = super().operations
        return offered if self.policy.decides(ASK_PERSON) is Decision.DENY else [*offered, ASK_PERSON]

    async def call(self, name: str, arguments: Mapping[str, Any] | str) -> ToolResult:
        """Answer as a Toolbox does, or from the record. Calls that may change files are made one at a time."""
        if name == ASK_PERSON.name:
            if self.policy.decides(ASK_PERSON) is Decision.DENY:
                return ToolResult.of_error(ToolError("policy", "ask_person is denied by the policy"))
            return await self._ask_person(arguments)
        if (operation := OPERATIONS.get(name)) is None:
            return await super().call(name, arguments)
        asked = {"name": name, "arguments": arguments if isinstance(arguments, str) else dict(arguments)}
        if operation.effect in (Effect.READS, Effect.REACHES):
            return await self._call(asked, may_change=False)
        async with self._calling:
            return await self._call(asked, may_change=True)

    async def _call(self, asked: Mapping[str, Any], *, may_change: bool) -> ToolResult:
        known = await self._post("tool_calls", asked)
        if known is None:
            return await super().call(asked["name"], asked["arguments"])
        if (answer := known.get("answer")) is not None:
            await asyncio.to_thread(put, self._root, known["changes"])
            return ToolResult(answer["ok"], answer["content"], answer["text"])
        before = await asyncio.to_thread(look_at, self._root) if may_change else {}
        result = await super().call(asked["name"], asked["arguments"])
        changes = await asyncio.to_thread(self._changes, before) if may_change else {}
        if changes:
            await self._audit_changes(asked["name"], changes, result)
        answer = {"ok": result.ok, "content": result.content, "text": result.text}
        await self._post(f"tool_calls/{known['call']}", {"answer": answer, "changes": changes})
        return result

    def _changes(self, before: Look) -> Changes:
        return changes_between(self._root, before, look_at(self._root))

    async def _audit_changes(self, name: str, changes: Changes, result: ToolResult) -> None:
        """Note the paths that a call changed, without those of git's own files, and its commit."""
        paths = [path for path in sorted(changes) if path != ".git" and not path.startswith(".git/")]
        entry = {"event": "changed", "tool": name, "paths": paths[:MOST_PATHS]}
        commit = result.content.get("commit") if name == "git_commit" else None
        await self._audit.record(entry | ({"commit": commit} if commit else {}))

    async def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """None where the recorder keeps nothing: then a call is made as if there were none."""
        try:
            reply = await self._recorder.post(path, content=json.dumps(body).encode(), timeout=ASKED_S)
            return reply.json() if reply.is_success else None
        except (httpx.HTTPError, ValueError):
            return None

    async def _ask_person(self, arguments: Mapping[str, Any] | str) -> ToolResult:
        """Return a person's answer. The program does not outlive the wait for it."""
        try:
            given = arguments if isinstance(arguments, str) else json.dumps(dict(arguments))
            asked = ASK_PERSON.arguments.model_validate_json(given).model_dump_json()
            reply = await self._recorder.post("ask_person", content=asked.encode(), timeout=None)
            content = reply.json()
            if reply.is_success:
                return ToolResult(True, content, json.dumps(content, ensure_ascii=False))
            return ToolResult.of_error(ToolError("ours", str(content["error"]["message"])))
        except ValidationError as error:
            return ToolResult.of_error(ToolError("arguments", explain("call of ask_person", error)))
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            return ToolResult.of_error(ToolError("ours", f"nobody can be asked: {type(error).__name__}"))


def read_policy(file: Path | None) -> Policy:
    """Return the policy of a program that is recorded, whose names are those of all its tools. Raises PolicyError."""
    return Policy.read(file, TOOL_NAMES)


def recorder_client(base_url: str, key: str) -> httpx.AsyncClient:
    """Return a client of the recorder, by what a program finds in its environment."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    return httpx.AsyncClient(base_url=base_url.rstrip("/") + "/", headers=headers, trust_env=False)
