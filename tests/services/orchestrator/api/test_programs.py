"""What the API shows of programs: what runners tell, and what the log says of those that ended."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from ratchet.bus.topology import ROLLOUTS_TOPIC
from schemas.messages.response import Sample, Usage
from schemas.messages.runner_rollouts import RolloutProgress, RunnerRollouts
from schemas.messages.task import Task
from tests.services.orchestrator.api.calling import api_of
from tests.services.orchestrator.house import answered, house, scored
from tests.services.orchestrator.program_house import program_house, programs_file, revision

MADE = {"aider": Usage(calls=4, sampled_tokens=100, seconds=2.0), "shell": Usage(calls=1, sampled_tokens=20)}


async def test_rollouts_are_seen_at_work_and_programs_side_by_side(tmp_path: Path) -> None:
    async with house(tmp_path, programs=programs_file(tmp_path)) as fleet, api_of(fleet) as api:
        await fleet.submit(Task(task_id="t-1", input="Mend it."))
        (work,) = await fleet.work()
        began = {"task_id": "t-1", "agent_id": "small", "started_at": datetime.now(UTC), "seconds": 1.5}
        began |= {"state": "running", "calls": 2, "sampled_tokens": 9}
        items = tuple(
            RolloutProgress.model_validate(began | {"program": name, "sample": number})
            for number, name in enumerate(MADE)
        )
        news = RunnerRollouts(runner="host-1", at_once=8, waiting=1, items=items)
        await fleet.bus.broadcast(ROLLOUTS_TOPIC, news.encode(), type=RunnerRollouts.TYPE, message_id="m")

        now = (await api.get("/v1/rollouts", params={"task_id": "t-1"})).json()
        assert [(one["program"], one["state"], one["calls"]) for one in now["items"]] == [
            ("aider", "running", 2),
            ("shell", "running", 2),
        ]
        assert now["runners"] == [{"runner": "host-1", "at_once": 8, "running": 2, "waiting": 1}]
        assert (await api.get("/v1/rollouts", params={"agent_id": "other"})).json()["items"] == []

        made = tuple(Sample(text=name, program=name, usage=usage) for name, usage in MADE.items())
        await fleet.reward(scored(answered(work, *MADE).model_copy(update={"samples": made}), 1.0, 0.25))
        await fleet.results()

        compared = (await api.get("/v1/programs")).json()["items"]
    found = [(one["program"], one["score"]["mean"], one["calls"], one["seconds"], one["ended"]) for one in compared]
    assert found == [("aider", 1.0, 4, 2.0, {"finished": 1}), ("shell", 0.25, 1, None, {"finished": 1})]


async def test_without_programs_no_runner_is_listened_to(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        news = RunnerRollouts(runner="host-1", at_once=8, waiting=1, items=())
        await fleet.bus.broadcast(ROLLOUTS_TOPIC, news.encode(), type=RunnerRollouts.TYPE, message_id="m")

        assert (await api.get("/v1/rollouts")).json() == {"items": [], "runners": []}
        assert (await api.get("/v1/programs")).json()["items"] == []
        assert (await api.get("/v1/programs", params={"agent_id": "small"})).json()["items"] == []
        unknown = await api.get("/v1/programs", params={"agent_id": "nobody"})
        assert (unknown.status_code, "no agent 'nobody'; there are: small" in unknown.json()["detail"]) == (404, True)


async def test_an_operators_moves_over_the_api_and_where_programs_stand_then(tmp_path: Path) -> None:
    async with program_house(tmp_path, {"old": 0.4, "new": 0.8}) as fleet, api_of(fleet) as api:
        none = (await api.get("/v1/programs/small")).json()
        assert (none["primary"], none["items"]) == (None, [])

        asked = {"program": "new", "reason": "it thinks twice"}
        too_early = await api.post("/v1/programs/small/try", json=asked)
        assert (too_early.status_code, "no program answers by default yet" in too_early.json()["detail"]) == (409, True)
        chosen = await api.post("/v1/programs/small/promote", json={"program": "old", "reason": "it is what there is"})
        assert chosen.json()["primary"] == "old"
        await fleet.becomes("old", "stable")
        assert (await api.post("/v1/programs/small/try", json=asked)).json()["asked"] == "new"
        await fleet.becomes("new", "canary")

        stands = (await api.get("/v1/programs/small")).json()
        assert (stands["primary"], stands["candidate"], stands["asked"]) == ("old", "new", None)
        assert stands["runs"] == {"new": revision("new"), "old": revision("old")}
        assert [(one["name"], one["state"], one["aliases"], one["changed"]) for one in stands["items"]] == [
            ("old", "stable", ["primary"], False),
            ("new", "canary", ["candidate"], False),
        ]
        experiment_id = stands["experiment"]["experiment_id"]
        ((of, treatment, control),) = [
            (one["of"], one["treatment"], one["control"])
            for one in (await api.get("/v1/experiments")).json()["items"]
            if one["experiment_id"] == experiment_id
        ]
        assert (of, treatment, control) == ("programs", "new", "old")
        shown = (await api.get(f"/v1/experiments/{experiment_id}")).json()
        assert shown["plan"]["limits"]["length"] == 3.0
        (agent, _) = (await api.get("/v1/status")).json()["agents"]
        assert (agent["program"], agent["program_candidate"]) == ("old", "new")

        unknown = await api.post("/v1/programs/small/promote", json={"program": "nwe", "reason": "a slip"})
        assert (unknown.status_code, "they have new, old" in unknown.json()["detail"]) == (404, True)
        both = await api.post("/v1/programs/small/rollback", json={"reason": "which?"})
        assert both.status_code == 409
        back = await api.post("/v1/programs/small/rollback", json={"program": "new", "reason": "not today"})
        assert (back.json()["candidate"], back.json()["experiment"]) == (None, None)
        (newest, *_) = (await api.get("/v1/decisions")).json()["items"]
        who = (newest["who"], newest["reason"])
        assert who == ("operator:local", "not today")
