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

MADE = {"aider": Usage(calls=4, sampled_tokens=100, seconds=2.0), "shell": Usage(calls=1, sampled_tokens=20)}


async def test_rollouts_are_seen_at_work_and_programs_side_by_side(tmp_path: Path) -> None:
    async with house(tmp_path, programs=tmp_path / "programs.toml") as fleet, api_of(fleet) as api:
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
