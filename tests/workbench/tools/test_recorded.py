"""The tools of a program that runs again: answered from its record, with the files as each call left them."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ratchet.rollouts.application import Recorder
from ratchet.rollouts.kept_steps import KeptSteps
from ratchet.rollouts.rollout import RecordedRollout
from ratchet.rollouts.tool_audit import MOST_NAMED_BYTES, verify_lines
from ratchet.service.errors import JournalError
from ratchet.tools.recorded import RecordedToolbox, recorder_client
from ratchet.tools.server import build_server
from schemas.messages.response import ToolAudit
from tests.ratchet.conversation.speakers import template
from tests.ratchet.rollouts.scripted_engine import ScriptedEngine
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

    def __init__(self, toolbox: RecordedToolbox, root: Path, steps: KeptSteps, rollout: RecordedRollout) -> None:
        self.toolbox, self.root, self.steps, self.rollout = toolbox, root, steps, rollout

    @property
    def audit(self) -> ToolAudit:
        found = self.rollout.tool_audit.summary()
        assert found is not None
        return found

    def audited(self) -> int:
        """Calls that were made, in this run or one before it."""
        return sum(self.audit.operations.values())


@asynccontextmanager
async def running(folder: Path, name: str, *, keeps: bool = True) -> AsyncIterator[Running]:
    root = folder / name
    root.mkdir()
    steps = KeptSteps(folder / "0.steps.jsonl", "1 t/0", held_s=0.02)
    engine = ScriptedEngine(lambda _: (0,))
    rollout = RecordedRollout(template("qwen2_5"), engine, model="m", steps=steps if keeps else None)
    recorder = Recorder()
    transport = httpx.ASGITransport(recorder.application())
    headers = {"Authorization": f"Bearer {recorder.begin(rollout)}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://recorder/v1/", headers=headers) as client:
        toolbox = RecordedToolbox(root, Policy(), recorder=client)
        yield Running(toolbox, root, steps, rollout)
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
        assert second.audited() == 5, "those of the first run and the one that is new"
        assert files(second.root) == {"a.txt": "two\n", "b.txt": "b\n"}


async def test_the_audit_of_both_runs_is_one_chain_that_tells_what_was_done(tmp_path: Path) -> None:
    async with running(tmp_path, "first") as first:
        for name, arguments in (*CALLS[:4], ("file_remove", {"path": "a.txt"}), ("file_write", {"path": 1})):
            await first.toolbox.call(name, arguments)
        before = first.audit

    async with running(tmp_path, "second") as second:
        for name, arguments in (*CALLS[:4], ("file_remove", {"path": "a.txt"}), ("file_write", {"path": 1}), CALLS[4]):
            await second.toolbox.call(name, arguments)
        audit = second.audit

    assert audit.lines[: before.count] == before.lines, "what was answered from the record is not written again"
    assert audit.operations == {"file_write": 2, "file_read": 2, "file_replace": 1}
    assert (audit.failed, audit.refused, audit.changed) == (1, 2, ("a.txt", "b.txt"))
    verify_lines(audit.lines, audit.count, audit.sha256)
    for touched in (
        (*audit.lines[:2], audit.lines[2].replace("file_", "fine_"), *audit.lines[3:]),
        audit.lines[1:],
        audit.lines[:-1],
        (*audit.lines[:3], *audit.lines[4:]),
    ):
        with pytest.raises(JournalError):
            verify_lines(touched, audit.count, audit.sha256)


async def test_a_rollout_that_begins_anew_begins_its_audit_anew(tmp_path: Path) -> None:
    async with running(tmp_path, "first") as first:
        await first.toolbox.call(*CALLS[0])
        first.steps.begin_anew("it diverged")

    async with running(tmp_path, "second") as second:
        await second.toolbox.call(*CALLS[4])

        assert (second.audited(), second.audit.changed) == (1, ("b.txt",))


async def test_a_commit_is_in_the_audit_and_gits_own_files_are_not(tmp_path: Path) -> None:
    async with running(tmp_path, "first") as at:
        await asyncio.to_thread(subprocess.run, ["git", "init", "--quiet", str(at.root)], check=True)
        await at.toolbox.call(*CALLS[0])
        await at.toolbox.call("git_add", {"paths": ["a.txt"]})
        result = await at.toolbox.call("git_commit", {"message": "one"})

        assert (at.audit.commits, at.audit.changed) == ((result.content["commit"],), ("a.txt",))


async def test_lines_beyond_the_bound_are_counted_and_chained(tmp_path: Path) -> None:
    async with running(tmp_path, "first") as at:
        for number in range(20):
            at.rollout.tool_audit.record(
                json.dumps({"event": "refused", "tool": f"{number}", "why": "x" * 8000}).encode()
            )
        audit = at.audit

    assert (audit.count, audit.refused, len(audit.lines)) == (20, 20, 7)
    verify_lines(audit.lines, audit.count, audit.sha256)


async def test_the_paths_that_the_audit_names_are_bounded_in_number_and_in_bytes(tmp_path: Path) -> None:
    async with running(tmp_path, "first") as many, running(tmp_path, "second") as long:
        for number in range(300):
            for at, path in ((many, f"{number:03}"), (long, f"{number:03}{'x' * 4000}")):
                entry = {"event": "changed", "tool": "file_write", "paths": [path]}
                at.rollout.tool_audit.record(json.dumps(entry).encode())

        assert many.audit.changed == tuple(f"{number:03}" for number in range(200))
        assert (long.audit.count, len(long.audit.changed)) == (300, MOST_NAMED_BYTES // 4003)


@pytest.mark.parametrize(
    "entry",
    [
        b"[]",
        b"{",
        b'{"event": "ended"}',
        b'{"event": "other", "tool": "x"}',
        b'{"sequence": 1}',
        b"x" * 20_000,
        b'{"event": "called", "tool": "made_up"}',
        b'{"event": "refused", "tool": "%s"}' % (b"x" * 101),
        b'{"event": "changed", "tool": "git_commit", "commit": "%s"}' % (b"0" * 65),
    ],
)
async def test_what_is_no_entry_of_the_audit_is_refused(entry: bytes, tmp_path: Path) -> None:
    async with running(tmp_path, "first") as at:
        reply = await at.toolbox._recorder.post("tool_audit", content=entry)

        assert (reply.status_code, at.rollout.tool_audit.summary()) == (400, None)


async def test_nothing_is_done_where_the_recorder_takes_no_audit(tmp_path: Path) -> None:
    async with running(tmp_path, "first") as at:
        at.toolbox._recorder.headers["Authorization"] = "Bearer of another rollout"
        with pytest.raises(JournalError, match="does not take the audit"):
            await at.toolbox.call(*CALLS[0])

        assert files(at.root) == {}


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
