"""The trainer's routes: asked once, done once, seen while it runs and after."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ratchet.bus.topology import fleet_topology
from ratchet.http.server.application import application
from ratchet.runs.progress import ProgressFile
from ratchet.runs.store import RunStore
from schemas.messages.base import Metadata
from schemas.messages.training import AdapterTrained
from services.trainer.settings import TrainerSettings
from services.trainer.worker import TrainerWorker
from tests.memory_bus import MemoryBus
from tests.ratchet.adapters.making_adapters import NOON

ASKED = {"agent_id": "small", "request_id": "r-1", "seed": 3}


class House:
    """A trainer that records what it is asked for; the test plays the runs."""

    def __init__(self, folder: Path, **given: Any) -> None:
        self.settings = TrainerSettings(adapters_dir=folder / "adapters", logs_dir=folder / "logs", **given)
        self.jobs = RunStore(self.settings.adapters_dir)
        self.worker = TrainerWorker(self.settings, MemoryBus(fleet_topology(self.settings.agents)))

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        app = application("trainer", self.worker.routers(), self.settings, lambda: None)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client,
        ):
            yield client

    def end(self, request_id: str, **given: Any) -> None:
        fields = {"request_id": request_id, "agent_id": "small", "metadata": Metadata(source="trainer")}
        self.jobs.folder("small", request_id).outcome = AdapterTrained(**(fields | given))


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


async def test_a_request_is_on_disk_when_it_is_answered(house: House) -> None:
    async with house.client() as client:
        answer = await client.post("/v1/train", json=ASKED)

    assert (answer.status_code, answer.headers["location"]) == (202, "/v1/trainings/r-1")
    assert answer.json()["state"] == "queued"
    request = house.jobs.folder("small", "r-1").request
    assert (request.seed, request.metadata.source) == (3, "api:local")


async def test_asked_again_is_the_same_run_and_with_other_content_a_conflict(house: House) -> None:
    async with house.client() as client:
        first, again = [await client.post("/v1/train", json=ASKED) for _ in range(2)]
        other = await client.post("/v1/train", json=ASKED | {"seed": 4})

    assert (again.status_code, again.json()) == (202, first.json())
    assert (other.status_code, other.json()["type"]) == (409, "id-taken")
    assert len(house.jobs.folders()) == 1


async def test_an_idempotency_key_stands_for_an_id(house: House) -> None:
    key = {"Idempotency-Key": "monday"}

    async with house.client() as client:
        first, again = [await client.post("/v1/train", json={"agent_id": "small"}, headers=key) for _ in range(2)]
        other = await client.post("/v1/train", json={"agent_id": "small", "seed": 9}, headers=key)
        none = [await client.post("/v1/train", json={"agent_id": "small"}) for _ in range(2)]

    assert first.json()["run_id"] == again.json()["run_id"]
    assert (other.status_code, other.json()["type"]) == (422, "key-reused")
    assert len({answer.json()["run_id"] for answer in (first, *none)}) == 3


async def test_a_run_is_found_where_its_location_says_whatever_its_id(house: House) -> None:
    async with house.client() as client:
        asked = await client.post("/v1/train", json={"agent_id": "small", "request_id": "night/2031-05-01 ü?"})
        found = await client.get(asked.headers["location"])

    assert (found.status_code, found.json()["run_id"]) == (200, "night/2031-05-01 ü?")


async def test_an_unknown_agent_is_refused_and_leaves_nothing(house: House) -> None:
    async with house.client() as client:
        answer = await client.post("/v1/train", json={"agent_id": "nobody"})

    assert (answer.status_code, answer.json()["type"]) == (422, "rejected")
    assert house.jobs.folders() == []


async def test_a_run_tells_how_it_stands_and_how_it_ended(house: House) -> None:
    async with house.client() as client:
        await client.post("/v1/train", json=ASKED)
        job = house.jobs.folder("small", "r-1")
        job.begin("")
        standing = ProgressFile(job.progress, lambda: NOON)
        standing.record({"stage": "selected", "counts": {"used": 12}})
        standing.record({"stage": "training", "step": 1, "steps": 4, "loss": 0.5, "reward": 0.2})
        standing.record({"stage": "training", "step": 2, "steps": 4, "loss": 0.25, "reward": 0.4})
        standing.write()
        running = (await client.get("/v1/trainings/r-1")).json()
        house.end("r-1", status="refused", reason="too few groups: 3 of 8", counts={"used": 3})
        refused = (await client.get("/v1/trainings/r-1")).json()

    told = running["progress"]
    assert (running["state"], told["stage"], told["step"], told["steps"]) == ("running", "training", 2, 4)
    assert told["at"] == "2026-01-05T12:00:00Z"
    assert running["curves"]["loss"] == [[1.0, 0.5], [2.0, 0.25]]
    assert running["counts"] == {"used": 12}
    assert (refused["state"], refused["reason"], refused["counts"]) == (
        "refused",
        "too few groups: 3 of 8",
        {"used": 3},
    )
    assert (refused["progress"], refused["curves"]) == (None, running["curves"])


async def test_a_trained_run_shows_the_curves_of_its_report(house: House) -> None:
    folder = house.settings.adapters_dir / "small/v1.0.1"
    folder.mkdir(parents=True)
    steps = [{"step": step, "loss": 1 / step, "kl": 0.0} for step in (1, 2, 3)]
    (folder / "training_report.json").write_text(json.dumps({"steps": steps}))

    async with house.client() as client:
        await client.post("/v1/train", json=ASKED)
        house.end("r-1", status="trained", adapter_version="v1.0.1", adapter_sha256="0" * 64)
        run = (await client.get("/v1/trainings/r-1")).json()
        shutil.rmtree(folder)
        archived = (await client.get("/v1/trainings/r-1")).json()

    assert (run["state"], run["adapter_version"]) == ("trained", "v1.0.1")
    assert [step for step, _ in run["curves"]["loss"]] == [1.0, 2.0, 3.0]
    assert "kl" not in run["curves"]
    assert (archived["state"], archived["curves"]) == ("trained", {})


async def test_the_list_has_pages_the_newest_first_and_filters(house: House) -> None:
    async with house.client() as client:
        for number in range(5):
            await client.post("/v1/train", json={"agent_id": "small", "request_id": f"r-{number}"})
            await asyncio.sleep(0.002)  # real time: they come one after the other, by the clock
        house.end("r-2", status="failed", reason="died")
        first = (await client.get("/v1/trainings", params={"limit": 2})).json()
        second = (await client.get("/v1/trainings", params={"limit": 2, "cursor": first["next"]})).json()
        last = (await client.get("/v1/trainings", params={"limit": 2, "cursor": second["next"]})).json()
        failed = (await client.get("/v1/trainings", params={"state": "failed"})).json()
        misspelt = await client.get("/v1/trainings", params={"stat": "failed"})
        no_cursor = await client.get("/v1/trainings", params={"cursor": "AAAA"})

    pages = [[run["run_id"] for run in page["items"]] for page in (first, second, last, failed)]
    assert pages == [["r-4", "r-3"], ["r-2", "r-1"], ["r-0"], ["r-2"]]
    assert last["next"] is None
    assert [(one.status_code, one.json()["errors"][0]["pointer"]) for one in (misspelt, no_cursor)] == [
        (422, "stat"),
        (422, "cursor"),
    ]


async def test_a_damaged_record_hides_no_other(house: House) -> None:
    async with house.client() as client:
        for name in ("r-1", "r-2"):
            await client.post("/v1/train", json={"agent_id": "small", "request_id": name})
        (house.jobs.folder("small", "r-1").path / "request.json").write_text("half a rec")
        listed = (await client.get("/v1/trainings")).json()
        unknown = await client.get("/v1/trainings/r-9")

    assert [run["run_id"] for run in listed["items"]] == ["r-2"]
    assert (unknown.status_code, unknown.json()["type"]) == (404, "unknown-training")
