"""/v1/trainings: a run is seen while it waits, while it goes, and after, whoever keeps a record of it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from ratchet.bus.topology import ADAPTERS, TRAINING
from ratchet.runs.progress import ProgressFile
from ratchet.runs.store import RunFolder, RunStore
from schemas.messages.base import Metadata
from schemas.messages.training import AdapterTrained, TrainRequest
from tests.services.orchestrator.api.calling import api_of
from tests.services.orchestrator.house import House, house
from tests.services.orchestrator.learning_house import AGENT, LearningHouse, learning_house
from tests.waiting import until

FEW = "too few groups: 3 of 8"
QUALITY = {"v1.0.0": 0.5}


async def got(api: httpx.AsyncClient, path: str) -> dict[str, Any]:
    answer = await api.get(path)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def asked_for(fleet: LearningHouse) -> str:
    """The fleet itself asks for a training after four groups; its request's id."""
    await fleet.traffic(stop_when=lambda: bool(fleet.bus.deliveries_published(TRAINING)))
    return TrainRequest.decode(fleet.bus.deliveries_published(TRAINING)[0].body).request_id


def recorded(fleet: House, request_id: str, agent_id: str = AGENT) -> RunFolder:
    """As the trainer does it, when a person has asked."""
    asked = Metadata(timestamp=datetime.now(UTC), source="api:ann")
    request = TrainRequest(request_id=request_id, agent_id=agent_id, metadata=asked)
    return RunStore(fleet.settings.adapters_dir).record(request)


def begun(job: RunFolder, steps: int) -> ProgressFile:
    """A process is at it, and has made so many of eight steps."""
    job.begin("")
    standing = ProgressFile(job.progress, lambda: datetime.now(UTC))
    standing.record({"stage": "selected", "counts": {"groups": 64, "groups.zero_spread": 3}})
    for step in range(steps + 1):
        standing.record({"stage": "training", "step": step, "steps": 8} | ({"reward": step / 10} if step else {}))
    standing.write()
    return standing


async def test_what_the_fleet_asked_for_waits_and_a_refusal_is_there_with_its_reason_after_a_restart(
    tmp_path: Path,
) -> None:
    async with learning_house(tmp_path, QUALITY, train_after_groups=4) as fleet, api_of(fleet) as api:
        request_id = await asked_for(fleet)
        (waiting,) = (await got(api, "/v1/trainings"))["items"]
        await fleet.refused(request_id, FEW)
        await until(lambda: fleet.orchestrator.parts.promoters[AGENT].training.ended_runs)
    async with house(tmp_path) as again, api_of(again) as api:
        refused = (await got(api, "/v1/trainings?state=refused"))["items"][0]
        detail = await got(api, f"/v1/trainings/{request_id}")

    assert (waiting["run_id"], waiting["state"], waiting["asked_by"]) == (request_id, "queued", "orchestrator")
    assert "new useful groups" in waiting["why"]
    assert (refused["run_id"], refused["reason"], refused["why"]) == (request_id, FEW, waiting["why"])
    assert (refused["asked_at"], refused["seconds"] >= 0) == (waiting["asked_at"], True)
    assert (detail["reason"], detail["curves"], detail["progress"]) == (FEW, {}, None)


async def test_a_run_is_seen_as_it_goes_by_the_record_of_whichever_trainer_has_it(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        job = recorded(fleet, "night/1")
        queued = await got(api, "/v1/trainings/night%2F1")
        begun(job, steps=2)
        running = await got(api, "/v1/trainings/night%2F1")
        begun(job, steps=3)
        listed = (await got(api, "/v1/trainings?state=running"))["items"]

    assert (queued["state"], queued["asked_by"], queued["progress"]) == ("queued", "api:ann", None)
    assert (running["state"], running["progress"]["step"], running["progress"]["steps"]) == ("running", 2, 8)
    assert running["curves"] == {"reward": [[1.0, 0.1], [2.0, 0.2]]}
    assert running["counts"] == {"groups": 64, "groups.zero_spread": 3}
    assert [(one["run_id"], one["progress"]["step"]) for one in listed] == [("night/1", 3)]


async def test_the_trainer_s_record_goes_before_what_was_heard_and_outlives_its_adapter(tmp_path: Path) -> None:
    async with learning_house(tmp_path, QUALITY, train_after_groups=4) as fleet, api_of(fleet) as api:
        request_id = await asked_for(fleet)
        job = recorded(fleet, request_id)
        begun(job, steps=1)
        (running,) = (await got(api, "/v1/trainings"))["items"]
        job.outcome = AdapterTrained(request_id=request_id, agent_id=AGENT, status="failed", reason="out of memory")
        failed = await got(api, f"/v1/trainings/{request_id}")

    assert running["state"] == "running"
    assert (failed["state"], failed["reason"]) == ("failed", "out of memory")
    assert failed["curves"] == {"reward": [[1.0, 0.1]]}


async def test_the_end_of_a_run_of_another_make_is_kept(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        message = AdapterTrained(request_id="theirs", agent_id=AGENT, status="refused", reason=FEW)
        for _ in range(2):
            await fleet.send(ADAPTERS, message.encode(), reply_to=None)
        await until(lambda: bool(fleet.orchestrator.parts.promoters[AGENT].training.ended_runs))
        (listed,) = (await got(api, "/v1/trainings"))["items"]

    assert (listed["run_id"], listed["state"], listed["reason"]) == ("theirs", "refused", FEW)
    assert (listed["asked_at"], listed["algorithm"], listed["seed"]) == (None, None, None)
    assert listed["ended_at"] is not None


async def test_the_list_has_pages_and_filters_and_an_unknown_run_is_none(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        for number in range(4):
            recorded(fleet, f"r-{number}", "other" if number == 2 else AGENT)
        first = await got(api, "/v1/trainings?limit=3")
        second = await got(api, f"/v1/trainings?limit=3&cursor={first['next']}")
        others = await got(api, "/v1/trainings?agent_id=other")
        unknown = await api.get("/v1/trainings/r-9")
        no_cursor = await api.get("/v1/trainings?cursor=AAAA")

    pages = [[one["run_id"] for one in page["items"]] for page in (first, second, others)]
    assert pages == [["r-3", "r-2", "r-1"], ["r-0"], ["r-2"]]
    assert second["next"] is None
    assert (unknown.status_code, unknown.json()["type"]) == (404, "unknown-training")
    assert no_cursor.status_code == 422
