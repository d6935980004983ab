"""An operator's moves while others look: they wait for nobody."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from ratchet.http.work import THREADS
from tests.services.orchestrator.api.calling import api_of
from tests.services.orchestrator.house import house


async def test_the_page_is_told_what_verify_says(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        await api.post("/v1/adapters/small/freeze", json={"reason": "look into it"})
        found = (await api.get("/v1/decisions/verification")).json()
    assert (found["ok"], found["faults"], found["decisions"], found["signed"]) == (True, [], 1, 1)


async def test_a_forged_decision_is_told_too(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        await api.post("/v1/adapters/small/freeze", json={"reason": "look into it"})
        ledger = fleet.settings.adapters_dir / "decisions.jsonl"
        ledger.write_bytes(ledger.read_bytes().replace(b"look into it", b"just because"))
        found = (await api.get("/v1/decisions/verification")).json()
    assert (found["ok"], found["decisions"]) == (False, 0)
    assert "line 1" in found["faults"][0]


async def test_a_move_does_not_wait_for_those_who_read(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        done = threading.Event()
        reading = [asyncio.create_task(fleet.orchestrator._threads.run(done.wait, 30)) for _ in range(2 * THREADS)]
        await asyncio.sleep(0)

        async with asyncio.timeout(10):
            answer = await api.post("/v1/adapters/small/freeze", json={"reason": "look into it"})

        still = [one.done() for one in reading]
        done.set()
        await asyncio.gather(*reading)
    assert (answer.status_code, answer.json()["frozen"]["reason"]) == (200, "look into it")
    assert not any(still)
