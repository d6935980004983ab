"""`ratchet cancel` asks the orchestrator, and says what came of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from typer.testing import CliRunner

from schemas import Task
from services.cli.app import app
from tests.services.orchestrator.api.chatting import served
from tests.services.orchestrator.house import house


async def test_a_task_is_cancelled_by_its_id_and_the_second_time_says_that_it_has_ended(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, served(fleet) as address:
        await fleet.submit(Task(task_id="a/b 1", input="x"))
        await fleet.work()

        first, again = [await cancelled("a/b 1", address) for _ in range(2)]

    assert first[0] == 0 and "cancelled by local" in first[1]
    assert again[0] == 1 and "it is cancelled" in again[1]


async def cancelled(task_id: str, address: str) -> tuple[int, str]:
    told = await asyncio.to_thread(CliRunner().invoke, app, ["cancel", task_id, "--url", address])
    return told.exit_code, told.output
