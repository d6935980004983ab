"""Jobs that train: asked of the fleet's trainer, followed by the records of their runs, cancelled, paid for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ratchet.adapters.registry import RegistryStore
from ratchet.http.access.roles import Role
from ratchet.runs.store import RunFolder, RunStore
from schemas.messages.training import AdapterTrained
from schemas.records.registry import AdapterEntry, EntryState
from tests.ratchet.http.access.tokens_for_tests import Mint, bearer
from tests.services.manager.managed import Managed, managed
from tests.services.manager.test_agents import PROGRAM, REPORT
from tests.waiting import until

SUM = "a" * 64
PRICES = 'currency = "EUR"\n[agents.small]\nprompt = 0\nsampled = 1\ntraining = 2\nsamples = 1\nmax_tokens = 5\n'


async def record(here: Managed, folder: Path, run_id: str) -> RunFolder:
    """Play the trainer that takes the request."""
    await until(lambda: run_id in here.fleet.runs, f"the request of run {run_id}")
    return RunStore(folder / "adapters").record(here.fleet.runs[run_id])


def end(run: RunFolder, version: str | None, reason: str | None = None) -> None:
    """Play the trainer that has trained a version, or refuses."""
    request = run.request
    run.outcome = AdapterTrained(
        request_id=request.request_id,
        agent_id=request.agent_id,
        status="trained" if version else "refused",
        adapter_version=version,
        adapter_sha256=SUM if version else None,
        reason=reason,
    )


def register(folder: Path, *versions: str, agent_id: str = "small", sha256: str | None = SUM) -> None:
    """Play the orchestrator that registers versions."""
    store = RegistryStore(folder / "adapters")
    registry = store.read()
    state = EntryState.TRAINED if sha256 else EntryState.REJECTED
    known = registry.agent(agent_id)
    new = {one: AdapterEntry(version=one, state=state, decision=1, sha256=sha256) for one in versions}
    changed = known.model_copy(update={"versions": known.versions | new})
    store.path.write_bytes(registry.model_copy(update={"agents": registry.agents | {agent_id: changed}}).encode())


async def test_a_training_ends_with_the_version_that_is_registered(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        # given a job of two runs, which have their hyperparameters and where they start
        runs = [{"algorithm": "kto", "hyperparameters": {"learning_rate": 0.001}, "seed": 3}, {}]
        await here.post("/v1/jobs", json={"job_id": "t", "kind": "training", "tasks": runs})

        # then the trainer is asked for them, and a job says how far they are
        first, second = await record(here, tmp_path, "t/0"), await record(here, tmp_path, "t/1")
        asked = first.request
        assert (asked.agent_id, asked.algorithm, asked.seed, asked.hyperparameters) == (
            *("small", "kto", 3),
            {"learning_rate": 0.001},
        )
        first.begin("")
        await here.wait_for("t", reason="run t/1: it waits for a trainer")

        # when one is trained, it has ended once its version is registered; the other is refused
        end(first, "v1.0.1")
        end(second, None, "4 groups, and 8 are needed")
        await here.wait_for("t", failed=1, released=1)
        register(tmp_path, "v1.0.1")
        job = await here.wait_for("t", state="done")
        assert (job["ok"], job["failures"]) == (1, {"4 groups, and 8 are needed": 1})
        found = (await here.get("/v1/jobs/t/results"))["items"]
        assert [one["result"]["adapter_version"] for one in found if one["state"] == "ok"] == ["v1.0.1"]

        # and what failed can be run again, as another run
        await here.post("/v1/jobs/t/rerun")
        await record(here, tmp_path, "t/1/2")


async def test_a_version_that_could_not_be_registered_is_no_result(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        await here.post("/v1/jobs", json={"job_id": "t", "kind": "training", "tasks": [{}]})
        end(await record(here, tmp_path, "t/0"), "v1.0.1")
        register(tmp_path, "v1.0.1", sha256=None)
        job = await here.wait_for("t", state="done")
        assert job["failed"] == 1
        assert "could not be registered" in next(iter(job["failures"]))


async def test_a_cancelled_training_ends_whether_a_trainer_has_it_or_not(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        # given a run that a trainer is at, and one whose request is still on its way
        await here.post("/v1/jobs", json={"job_id": "t", "kind": "training", "tasks": [{}, {}]})
        begun = await record(here, tmp_path, "t/0")
        with begun.claim() as mine:
            assert mine

            # when the job is cancelled, the second ends at once, as the trainer will find it
            await here.post("/v1/jobs/t/cancel")
            await here.wait_for("t", cancelled=1, released=1)
            on_its_way = RunStore(tmp_path / "adapters").folder("small", "t/1").outcome
            assert on_its_way is not None
            assert on_its_way.reason == "cancelled by job t"
            assert begun.cancelled_by == "job t"

        # and the first when its trainer, or who comes after it, has ended it
        job = await here.wait_for("t", cancelled=2, released=0)
        assert job["state"] == "cancelled"


async def test_a_training_costs_its_price_if_it_makes_a_version_and_counts_for_quotas(tmp_path: Path) -> None:
    (prices := tmp_path / "prices.toml").write_text(PRICES)
    async with managed(tmp_path, prices=prices) as here:
        # given a budget for two runs, and a job of three
        job = {"job_id": "t", "kind": "training", "budget": "5", "tasks": [{}, {}, {}]}
        await here.post("/v1/jobs", json=job)
        first, second = await record(here, tmp_path, "t/0"), await record(here, tmp_path, "t/1")
        assert (await here.wait_for("t", released=2))["reserved"] == "4.000000"

        # when one makes a version and the other none, the first is paid for, and the third has its turn
        register(tmp_path, "v1.0.1", "v1.0.2")
        end(first, "v1.0.1")
        end(second, None, "too few groups")
        end(await record(here, tmp_path, "t/2"), "v1.0.2")
        job = await here.wait_for("t", state="done")
        assert (job["spent"], job["reserved"]) == ("4.000000", "0.000000")
        use = await here.get("/v1/tenants/default/quota")
        assert use["spent"] == "4.000000"

        # and a run whose price is above the budget, or which is one too many, is refused
        await here.post("/v1/jobs", status=402, json=job_of(budget="1.5"))
        await here.api.put("/v1/tenants/default/quota", json={"open_tasks": 0})
        await here.post("/v1/jobs", status=429, json=job_of())


async def test_trainings_have_a_window_beside_that_of_tasks(tmp_path: Path) -> None:
    async with managed(tmp_path, manager_window=1) as here:
        await here.submit(2, job_id="j")
        assert await here.released(1) == ["j/0"]
        await here.post("/v1/jobs", json={"job_id": "t", "kind": "training", "tasks": [{}, {}]})
        await record(here, tmp_path, "t/0")
        assert list(here.fleet.runs) == ["t/0"]


async def test_what_is_no_training_run_refuses_the_job_by_its_number(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        for odd, says in (
            ("sort: ba", "line 2: it has a text"),
            ({"input": "sort: ba"}, "line 2: it has 'input'"),
            ({"agent_id": "coder"}, "line 2: it has 'agent_id'"),
            ({"seed": -1}, "line 2: "),
            ({"parent_version": "newest"}, "line 2: "),
        ):
            found = await here.post("/v1/jobs", status=422, json=job_of(tasks=[{}, odd]))
            assert found["detail"].startswith(says)
        assert not here.fleet.runs


async def test_a_training_is_asked_for_by_operators_and_of_agents_that_teach(tmp_path: Path) -> None:
    mint = Mint(tmp_path / "keys")
    async with managed(tmp_path, api_public_keys=mint.keys.jwks, api_hosts=("127.0.0.1",)) as here:
        submitter = bearer(mint.good(Role.SUBMITTER, "ann"))
        operator = bearer(mint.good(Role.OPERATOR, "olga"))
        refused = await here.post("/v1/jobs", status=403, headers=submitter, json=job_of())
        assert "ask an operator" in refused["detail"]
        await here.post("/v1/agents", status=201, headers=operator, json=agent("bot", kind="evaluation"))
        refused = await here.post("/v1/jobs", status=422, headers=operator, json=job_of(agent_id="bot"))
        assert "teach nothing" in refused["detail"]

        # and one that no runner has is trained all the same: its model is
        await here.post("/v1/agents", status=201, headers=operator, json=agent("sim"))
        await here.post("/v1/jobs", headers=operator, json=job_of(job_id="t", agent_id="sim"))
        await until(lambda: "t/0" in here.fleet.runs, "the request")
        assert here.fleet.runs["t/0"].agent_id == "small"


async def test_a_research_agents_training_learns_from_its_tasks_and_starts_where_it_is_pinned(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        await here.post("/v1/agents", status=201, json=agent("lab", kind="research", adapter_version="v1.0.4"))
        runs = [{"hyperparameters": {"learning_rate": 0.01}}, {"parent_version": "v1.0.0"}]
        await here.post("/v1/jobs", json=job_of(job_id="t", agent_id="lab", tasks=runs))
        await until(lambda: len(here.fleet.runs) == 2, "the requests")
        found = [(one.agent_id, one.research_agent, one.parent_version) for one in here.fleet.runs.values()]
        assert found == [("small", "lab", "v1.0.4"), ("small", "lab", "v1.0.0")]

        # and an evaluation of it teaches not even these versions
        await here.post("/v1/runner-reports", json={"runner": "r", "agents": [REPORT | {"name": "lab"}]})
        await here.submit(1, job_id="e", agent_id="lab", kind="evaluation")
        await here.submit(1, job_id="j", agent_id="lab")
        await here.released(2)
        assert [here.fleet.open[one].kept_apart for one in ("e/0", "j/0")] == [True, "research"]


def agent(name: str, **rules: Any) -> dict[str, Any]:
    return {"name": name, "program": PROGRAM, **rules}


def job_of(**fields: Any) -> dict[str, Any]:
    return {"kind": "training", "tasks": [{}], **fields}
