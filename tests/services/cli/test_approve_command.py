"""`ratchet approve` lists what programs ask, answers once, and says that a second answer came too late."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.cli.app import app
from tests.services.orchestrator.api.chatting import served
from tests.services.orchestrator.approvals.test_approvals import ask, asking, lines, resumed, submitted
from tests.waiting import until


async def approve(*typed: str) -> tuple[int, str]:
    told = await asyncio.to_thread(CliRunner().invoke, app, ["approve", *typed])
    return told.exit_code, told.output


async def test_a_question_is_listed_answered_once_and_then_too_late(tmp_path: Path) -> None:
    async with asking(tmp_path) as at, served(at) as address:
        await submitted(at)
        await ask(at, "a1", options=("yes", "no"))

        async def is_listed() -> bool:
            code, told = await approve("--json", "--url", address)
            return code == 0 and [one["approval_id"] for one in json.loads(told)["items"]] == ["a1"]

        await until(is_listed)
        listed = await approve("--url", address)
        first = await approve("a1", "--reject", "--text", "too slow", "--url", address)
        second = await approve("a1", "--url", address)
        (work,) = await resumed(at)

    assert "So?" in listed[1]
    assert first[0] == 0 and "sample 0 of task t1 goes on" in first[1]
    assert second[0] == 1 and "local answered before" in second[1]
    assert [(one.decision, one.text) for one in work.approvals or ()] == [("reject", "too slow")]


async def test_a_question_is_shown_as_it_was_asked_and_commands_no_terminal(tmp_path: Path) -> None:
    async with asking(tmp_path) as at, served(at) as address:
        await submitted(at)
        await ask(at, "a1", question="Is [/INST] right?\n[yes/no] \x1b]0;mine\x1b[2J")
        await until(lambda: lines(tmp_path))
        code, told = await approve("--url", address)

    assert code == 0 and "Is [/INST] right?" in told and "[yes/no]" in told
    assert "\x1b" not in told


@pytest.mark.parametrize("typed", [("--reject",), ("--text", "x"), ("--edit", "x"), ("a1", "--edit", "x", "--reject")])
async def test_what_makes_no_sense_is_refused(typed: tuple[str, ...]) -> None:
    code, _ = await approve(*typed, "--url", "http://127.0.0.1:9")

    assert code == 2
