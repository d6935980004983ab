"""Jobs of kind `training` of a manager, through a real trainer on a tiny model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ratchet.adapters.check import check_adapter
from ratchet.adapters.limits import AdapterLimits
from ratchet.adapters.registry import RegistryStore
from ratchet.runs.store import RunStore
from ratchet.service.errors import NotAllowed
from schemas.messages.training import TrainRequest
from schemas.records.decision import DecisionDraft, Promote
from schemas.records.registry import AdapterEntry, EntryState
from services.trainer.settings import TrainerSettings
from services.trainer.train import do_run, register
from tests.ratchet.adapters.making_adapters import NOON
from tests.services.manager.managed import Managed, managed
from tests.services.manager.test_trainings import agent
from tests.services.trainer.making_logs import write_log
from tests.services.trainer.tiny_policy import logged_groups
from tests.waiting import until


async def train(here: Managed, settings: TrainerSettings, run_id: str) -> dict[str, int]:
    """Train what the manager asked for and register the version. Returns the counts of the data."""
    await until(lambda: run_id in here.fleet.runs, f"the request of run {run_id}")
    request = TrainRequest.decode(here.fleet.runs[run_id].encode())
    folder = RunStore(settings.adapters_dir).record(request)
    outcome = await asyncio.to_thread(do_run, settings, folder, lambda said: None)
    assert outcome is not None
    if outcome.status == "trained":
        register(settings, outcome)
    return outcome.counts


def entry(settings: TrainerSettings, version: str) -> AdapterEntry:
    return RegistryStore(settings.adapters_dir).read().agent("small").versions[version]


async def test_a_job_of_two_runs_has_a_version_and_a_refusal(settings: TrainerSettings, tmp_path: Path) -> None:
    runs: list[dict[str, Any]] = [{"seed": 3}, {"hyperparameters": {"min_groups": 10_000}}]
    async with managed(tmp_path) as here:
        await here.post("/v1/jobs", json={"job_id": "t", "kind": "training", "tasks": runs})
        for run_id in ("t/0", "t/1"):
            await train(here, settings, run_id)

        job = await here.wait_for("t", state="done")
        (reason,) = job["failures"]
        assert (job["ok"], job["failed"]) == (1, 1)
        assert "10,000" in reason
        found = (await here.get("/v1/jobs/t/results"))["items"]
        assert [one["result"]["adapter_version"] for one in found if one["state"] == "ok"] == ["v1.0.1"]

    assert check_adapter(settings.adapters_dir / "small" / "v1.0.1", AdapterLimits()).run_id == "t/0"
    assert entry(settings, "v1.0.1").state is EntryState.TRAINED


async def test_a_research_agents_tasks_teach_a_version_that_is_no_candidate(
    settings: TrainerSettings, base_model: Path, tmp_path: Path
) -> None:
    # given a log with tasks of users, and of a research agent that is pinned to the base model
    of_lab = {"registered_agent": "lab", "kept_apart": "research"}
    lines = [
        *logged_groups(base_model, None, count=12, each=6, seed=1),
        *logged_groups(base_model, None, count=12, each=6, seed=2, **of_lab),
    ]
    settings = settings.model_copy(update={"logs_dir": write_log(tmp_path / "logs", lines)})
    async with managed(tmp_path) as here:
        await here.post("/v1/agents", status=201, json=agent("lab", kind="research", adapter_version="v1.0.0"))
        for job_id, agent_id in (("own", "lab"), ("users", "small")):
            job = {"job_id": job_id, "kind": "training", "agent_id": agent_id, "tasks": [{}]}
            await here.post("/v1/jobs", json=job)

        # when a version of its own is trained, and one of the users'
        own, users = await train(here, settings, "own/0"), await train(here, settings, "users/0")

        # then each has learned from its tasks alone, and the agent may be pinned to its own
        assert own["lines.not_research"] == users["lines.other_tenant"] == 72
        await here.wait_for("own", state="done", ok=1)
        changed = await here.api.patch("/v1/agents/lab", json={"adapter_version": "v1.0.1"})
        assert changed.json()["adapter_version"] == "v1.0.1"

    mine = entry(settings, "v1.0.1")
    assert (mine.state, mine.research_agent, mine.parent) == (EntryState.RESEARCH, "lab", "v1.0.0")
    assert entry(settings, "v1.0.2").state is EntryState.TRAINED
    promotion = DecisionDraft(
        agent_id="small", move=Promote(version="v1.0.1"), who="operator:ann", at=NOON, reason="I want it"
    )
    with pytest.raises(NotAllowed, match="is research, so it can't become stable"):
        RegistryStore(settings.adapters_dir).update(lambda _: promotion)
