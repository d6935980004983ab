"""An operator's moves while others look: they wait for nobody."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from ratchet.adapters.registry import RegistryStore
from ratchet.http.work import THREADS
from schemas.messages.task import Task
from schemas.records.registry import AdapterEntry, EntryState
from tests.memory_bus import MemoryBus
from tests.ratchet.adapters.making_decisions import promoted_by_hand
from tests.services.orchestrator.api.calling import api_of
from tests.services.orchestrator.house import MINUTES, house


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


async def test_a_move_is_in_effect_when_it_is_answered(tmp_path: Path) -> None:
    promoted_by_hand(RegistryStore(tmp_path / "adapters"), "v1.0.1")
    async with house(tmp_path, pace=MINUTES) as fleet, api_of(fleet) as api:
        why = {"reason": "it is rude"}
        await api.post("/v1/adapters/small/rollback", json=why)
        await api.post("/v1/programs/small/promote", json={"program": "careful", **why})
        await api.post("/v1/adapters/small/freeze", json=why)
        await fleet.submit(Task(task_id="t1", input="x"))

        (work,) = await fleet.work()
        assert (work.arm.adapter_version, work.arm.program) == ("v1.0.0", "careful")
        (agent, _) = (await api.get("/v1/status")).json()["agents"]
        assert (agent["primary"], agent["frozen"], agent["program"]) == ("v1.0.0", True, "careful")


async def test_a_move_does_not_wait_for_a_broker_that_takes_nothing(tmp_path: Path) -> None:
    may_take = asyncio.Event()

    class Holding(MemoryBus):
        async def broadcast(self, topic: str, body: bytes, *, type: str, message_id: str) -> None:
            await may_take.wait()

    async with house(tmp_path, pace=MINUTES, bus=Holding) as fleet, api_of(fleet) as api:
        async with asyncio.timeout(60):
            answer = await api.post("/v1/adapters/small/freeze", json={"reason": "look into it"})

        (agent, _) = (await api.get("/v1/status")).json()["agents"]
        assert (answer.status_code, agent["frozen"]) == (200, True)
        may_take.set()


async def test_a_move_does_not_wait_for_those_who_read(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        done = threading.Event()
        reading = [asyncio.create_task(fleet.orchestrator.parts.threads.run(done.wait, 30)) for _ in range(2 * THREADS)]
        await asyncio.sleep(0)

        async with asyncio.timeout(30):
            answer = await api.post("/v1/adapters/small/freeze", json={"reason": "look into it"})

        still = [one.done() for one in reading]
        done.set()
        await asyncio.gather(*reading)
    assert (answer.status_code, answer.json()["frozen"]["reason"]) == (200, "look into it")
    assert not any(still)


async def test_all_versions_come_at_once_or_page_by_page(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        await api.post("/v1/adapters/small/freeze", json={"reason": "so that there is a registry"})
        add_versions(fleet.settings.adapters_dir, 7)

        whole, _ = (await api.get("/v1/adapters")).json()["items"]
        first = (await api.get("/v1/adapters", params={"limit": 3})).json()
        pages, cursor = [], ""
        while cursor is not None:
            asked = {"agent_id": "small", "limit": 3} | ({"cursor": cursor} if cursor else {})
            page = (await api.get("/v1/adapters", params=asked)).json()
            (agent,), cursor = page["items"], page["next"]
            pages.append([one["version"] for one in agent["versions"]])
            if cursor is not None:
                asks = ({"limit": 3}, {"agent_id": "small"}, {})
                refused = [await api.get("/v1/adapters", params={"cursor": cursor, **ask}) for ask in asks]

    assert [one["version"] for one in whole["versions"]] == [f"v1.0.{number}" for number in range(8)]
    assert whole["older"] == 0
    agent, _ = first["items"]
    assert (pages[0], agent["older"], first["next"]) == ([one["version"] for one in agent["versions"]], 4, None)
    assert {(one.status_code, one.json()["title"]) for one in refused} == {(422, "A cursor of what?")}
    assert pages == [["v1.0.0", "v1.0.5", "v1.0.6", "v1.0.7"], ["v1.0.2", "v1.0.3", "v1.0.4"], ["v1.0.1"]]


def add_versions(adapters_dir: Path, count: int) -> None:
    """Behind the orchestrator's back: they were superseded long ago."""
    store = RegistryStore(adapters_dir)
    registry = store.read()
    small = registry.agent("small")
    names = [f"v1.0.{number}" for number in range(1, count + 1)]
    added = {name: AdapterEntry(version=name, state=EntryState.SUPERSEDED, parent="v1.0.0") for name in names}
    agents = {**registry.agents, "small": small.model_copy(update={"versions": small.versions | added})}
    store.path.write_bytes(registry.model_copy(update={"agents": agents}).encode())
