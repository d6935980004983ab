"""The tools of a program that runs again: answered from its record, with the files as each call left them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ratchet.rollouts.application import Recorder
from ratchet.rollouts.engine import ScriptedEngine
from ratchet.rollouts.kept_steps import KeptSteps
from ratchet.rollouts.rollout import RecordedRollout
from ratchet.tools.audit import ToolAudit
from ratchet.tools.recorded import RecordedToolbox, recorder_client
from ratchet.tools.server import build_server
from tests.ratchet.conversation.speakers import template
from workbench.tools.policy import Policy

CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("file_write", {"path": "a.txt", "content": "one\n"}),
    ("file_read", {"path": "a.txt"}),
    ("file_replace", {"path": "a.txt", "old": "one", "new": "two"}),
    ("file_read", {"path": "missing.txt"}),
    ("file_write", {"path": "b.txt", "content": "b\n"}),
)


class Running:
    """One run of the program, in an empty workspace."""

    def __init__(self, toolbox: RecordedToolbox, root: Path, steps: KeptSteps, audit: Path) -> None:
        self.toolbox, self.root, self.steps, self._audit = toolbox, root, steps, audit

    def audited(self) -> int:
        """Calls that were made."""
        return sum(path.read_text().count('"called"') for path in self._audit.rglob("*.jsonl"))


@asynccontextmanager
async def running(folder: Path, name: str, *, keeps: bool = True) -> AsyncIterator[Running]:
    root, audit = folder / name, folder / f"audit-{name}"
    root.mkdir()
    steps = KeptSteps(folder / "0.steps.jsonl", "1 t/0", held_s=0.02)
    engine = ScriptedEngine(lambda _: (0,))
    rollout = RecordedRollout(template("qwen2_5"), engine, model="m", steps=steps if keeps else None)
    recorder = Recorder()
    transport = httpx.ASGITransport(recorder.application())
    headers = {"Authorization": f"Bearer {recorder.begin(rollout)}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://recorder/v1/", headers=headers) as client:
        toolbox = RecordedToolbox(root, Policy(), ToolAudit(audit), recorder=client)
        yield Running(toolbox, root, steps, audit)
        await toolbox.close()


def files(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in root.iterdir()}


async def test_a_program_that_runs_again_sees_at_each_step_the_files_that_it_saw_before(tmp_path: Path) -> None:
    seen, answers = [], []
    async with running(tmp_path, "first") as first:
        for name, arguments in CALLS[:4]:
            answers.append(await first.toolbox.call(name, arguments))
            seen.append(files(first.root))
        assert first.audited() == 4

    async with running(tmp_path, "second") as second:
        for at, (name, arguments) in enumerate(CALLS):
            answer = await second.toolbox.call(name, arguments)
            if at < 4:
                assert (answer, files(second.root)) == (answers[at], seen[at])
        assert second.audited() == 1
        assert files(second.root) == {"a.txt": "two\n", "b.txt": "b\n"}


async def test_where_nothing_is_kept_a_call_is_made(tmp_path: Path) -> None:
    async with running(tmp_path, "first", keeps=False) as at:
        result = await at.toolbox.call(*CALLS[0])

        assert (result.ok, at.audited(), files(at.root)) == (True, 1, {"a.txt": "one\n"})


async def test_a_call_that_differs_is_refused_once_the_record_has_diverged(tmp_path: Path) -> None:
    async with running(tmp_path, "first") as first:
        await first.toolbox.call(*CALLS[0])

    async with running(tmp_path, "second") as second:
        await second.toolbox.call(*CALLS[4])
        assert second.steps.diverged is not None


async def test_a_person_can_be_asked_by_a_tool_of_mcp(tmp_path: Path) -> None:
    async with running(tmp_path, "first") as first:
        assert await first.steps.ask("So?", ("yes",)) is None
        assert first.steps.waits is not None
        first.steps.answer(first.steps.waits.approval_id, "approve", "yes")

    async with running(tmp_path, "second") as second:
        tools = {tool.name: tool for tool in await build_server(second.toolbox).list_tools()}
        result = await second.toolbox.call("ask_person", {"question": "So?", "options": ["yes"]})

        assert "question" in tools["ask_person"].input_schema["required"]
        assert (result.ok, result.content) == (True, {"decision": "approve", "text": "yes"})


@pytest.mark.parametrize("arguments", [{}, {"question": ""}, {"question": "x", "options": "yes"}, "{"])
async def test_a_question_that_is_none_is_told_so(arguments: Any, tmp_path: Path) -> None:
    async with running(tmp_path, "first") as at:
        result = await at.toolbox.call("ask_person", arguments)

        assert (result.ok, result.content["error"]) == (False, "arguments")


async def test_where_nobody_can_be_asked_the_tool_says_so(tmp_path: Path) -> None:
    async with running(tmp_path, "first", keeps=False) as at:
        result = await at.toolbox.call("ask_person", {"question": "So?"})

        assert (result.ok, "nobody can be asked" in result.content["says"]) == (False, True)


def test_its_client_finds_the_recorder_by_what_a_program_is_given() -> None:
    client = recorder_client("http://127.0.0.1:1/v1", "key")

    assert str(client.base_url) == "http://127.0.0.1:1/v1/"
    assert client.headers["authorization"] == "Bearer key"
