"""Budgets and quotas: reserved at release, settled by what was used, and refused with the figures."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import create_engine, select

from ratchet.http.access.roles import Role
from ratchet.service.errors import SettingsError
from ratchet.service.prices import LARGEST, AgentPrices, Prices, cost, most_tokens
from schemas.messages.result import TaskUsage
from schemas.messages.task import Task
from services.manager.tables import tasks
from tests.ratchet.http.access.tokens_for_tests import Mint, bearer
from tests.services.manager.managed import Managed, ScriptedFleet, managed
from tests.waiting import settled, until

SMALL = """
currency = "EUR"
[agents.small]
prompt = 0
sampled = 1000000
samples = 2
max_tokens = 5
"""
"""A token that is sampled costs 1 EUR, so a task costs at most 10."""


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    path = tmp_path / "prices.toml"
    path.write_text(SMALL)
    return path


def answer(here: Managed, task_id: str, tokens: int) -> None:
    here.fleet.answer(task_id, usage={"prompt_tokens": 3, "sampled_tokens": tokens})


async def test_a_task_reserves_the_most_that_it_can_cost_and_settles_what_it_took(tmp_path: Path, prices: Path) -> None:
    async with managed(tmp_path, prices=prices) as here:
        # given a task that names no bound, and one that names its own
        tasks: list[Any] = ["a", {"input": "b", "samples": 1, "max_tokens": 3}]
        await here.post("/v1/jobs", json={"job_id": "j", "tasks": tasks, "budget": "13"})
        await here.released(2)
        bounds = [(one.samples, one.max_tokens, one.needs_usage) for one in here.fleet.open.values()]
        assert bounds == [(2, 5, True), (1, 3, True)]
        assert (await here.wait_for("j", released=2))["reserved"] == "13.000000"

        # when one is answered, and the other fails
        answer(here, "j/0", 4)
        here.fleet.answer("j/1", status="failed", reason="the engine is away", response=None)

        # then the first costs what it took, and the other nothing
        job = await here.wait_for("j", state="done")
        assert (job["spent"], job["reserved"]) == ("4.000000", "0.000000")
        usage = await here.get("/v1/usage", params={"by": "job"})
        row = {"key": "j", "tasks": 1, "prompt_tokens": 3, "sampled_tokens": 4, "spent": "4.000000"}
        assert usage == {"currency": "EUR", "items": [row]}


async def test_a_job_is_paused_before_it_costs_more_than_its_budget(tmp_path: Path, prices: Path) -> None:
    async with managed(tmp_path, prices=prices) as here:
        # given a budget for two tasks at a time
        await here.submit(5, job_id="j", budget="25")
        assert await here.released(2) == ["j/0", "j/1"]
        await settled()
        assert len(here.fleet.submitted) == 2

        # when both take half of it, a third one fits, and then none
        answer(here, "j/0", 10)
        answer(here, "j/1", 4)
        await until(lambda: "j/2" in here.fleet.open)
        answer(here, "j/2", 10)
        job = await here.wait_for("j", state="paused")
        assert job["reason"].startswith(
            "its budget of 25.000000 can't pay for the next task: it may cost up to 10.000000, and 1.000000 is left"
        )

        # then it goes on with a larger one, and not with one that is spent already
        await here.post("/v1/jobs/j/resume", 402, params={"budget": "23"})
        await here.post("/v1/jobs/j/resume", params={"budget": "44"})
        assert await here.released(2) == ["j/3", "j/4"]


async def test_a_submitter_is_shown_what_its_own_jobs_used_and_an_admin_sets_quotas(
    tmp_path: Path, prices: Path
) -> None:
    mint = Mint(tmp_path / "keys")
    given = {"api_public_keys": mint.keys.jwks, "api_hosts": ("127.0.0.1",), "prices": prices}
    async with managed(tmp_path, **given) as here:
        for name in ("ann", "bob"):
            here.api.headers.update(bearer(mint.good(Role.SUBMITTER, name)))
            await here.submit(1, job_id=name)
            await here.released(1)
            answer(here, f"{name}/0", 4)
            await here.wait_for(name, state="done")

        rows = {
            (role, name, tenant): [
                row["key"]
                for row in (
                    await here.get("/v1/usage", params={"by": "job"}, headers=bearer(mint.good(role, name, tenant)))
                )["items"]
            ]
            for role, name, tenant in (
                (Role.SUBMITTER, "bob", None),
                (Role.VIEWER, "vic", None),
                (Role.VIEWER, "bob", "acme"),
                (Role.SUBMITTER, "bob", "acme"),
            )
        }
        assert list(rows.values()) == [["bob"], ["ann", "bob"], [], []]
        admin = bearer(mint.good(Role.ADMIN, "ada"))
        assert (await here.api.put("/v1/tenants/bob/quota", json={"weight": 3}, headers=admin)).status_code == 200
        assert (await here.api.put("/v1/tenants/bob/quota", json={"weight": 9})).status_code == 403


async def test_more_than_was_reserved_is_never_charged(tmp_path: Path, prices: Path) -> None:
    async with managed(tmp_path, prices=prices) as here:
        await here.submit(1, job_id="j", budget="10")
        await here.released(1)
        answer(here, "j/0", 999)
        assert (await here.wait_for("j", state="done"))["spent"] == "10.000000"


async def test_the_prices_of_its_release_hold_for_a_task(tmp_path: Path, prices: Path) -> None:
    # given a task that was released at the old prices
    async with managed(tmp_path, prices=prices) as here:
        await here.submit(1, job_id="j", budget="10")
        await here.released(1)

    # when another manager has other prices and bounds
    prices.write_text(SMALL.replace("1000000", "7000000").replace("max_tokens = 5", "max_tokens = 50"))
    fleet = ScriptedFleet()
    async with managed(tmp_path, fleet, prices=prices) as here:
        await here.released(1)
        assert fleet.open["j/0"].max_tokens == 5
        answer(here, "j/0", 2)
        assert (await here.wait_for("j", state="done"))["spent"] == "2.000000"


NO_BUDGETS = [
    ("9.99", 402, "line 1 may cost up to 10.000000, and the job's budget is 9.990000"),
    ("NaN", 422, "budget"),
    ("-1", 422, "budget"),
    (str(2**63), 422, "budget"),
    ("0.0000001", 422, "budget"),
]


async def test_a_budget_that_can_not_be_is_refused(tmp_path: Path, prices: Path) -> None:
    async with managed(tmp_path, prices=prices) as here:
        for budget, status, says in NO_BUDGETS:
            refused = await here.post("/v1/jobs", status, json={"job_id": "j", "tasks": ["a"], "budget": budget})
            assert says in refused["detail"]
            await here.get("/v1/jobs/j", 404)


async def test_no_budget_is_held_without_prices(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        refused = await here.post("/v1/jobs", 422, json={"tasks": ["a"], "budget": "1"})
        assert "no prices of agent 'small'" in refused["detail"]


async def test_no_budget_is_held_of_an_agent_without_prices(tmp_path: Path, prices: Path) -> None:
    async with managed(tmp_path, prices=prices) as here:
        await here.submit(1, job_id="j", agent_id="coder")
        await here.post("/v1/jobs/j/pause")
        refused = await here.post("/v1/jobs/j/resume", 422, params={"budget": "1"})
        assert "no prices of agent 'coder'" in refused["detail"]
        assert (await here.get("/v1/jobs/j"))["state"] == "paused"


async def test_the_used_share_of_each_limit_is_told_to_prometheus(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        await here.api.put("/v1/tenants/default/quota", json={"open_tasks": 8, "tokens_a_day": 100})
        await here.submit(2, job_id="j")
        await here.released(2)
        answer(here, "j/0", 37)

        def used_ratios() -> list[float | None]:
            name, limits = "ratchet_manager_quota_used_ratio", ("open_tasks", "tokens_a_day", "budget")
            return [REGISTRY.get_sample_value(name, {"tenant": "default", "limit": one}) for one in limits]

        await until(lambda: used_ratios() == [0.125, 0.4, None])


async def test_a_quota_bounds_open_tasks(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        await here.api.put("/v1/tenants/default/quota", json={"open_tasks": 3})
        await here.submit(2, job_id="j")
        refused = await here.post("/v1/jobs", 429, json={"tasks": ["a", "b"]})
        assert "has 2 open tasks and may have 3; these are 2 more" in refused["detail"]


async def test_a_quota_bounds_the_bytes_that_are_kept(tmp_path: Path) -> None:
    async with managed(tmp_path, manager_window=1) as here:
        # given a job whose tasks fit the quota
        await here.submit(2, job_id="j")
        kept = (await here.get("/v1/tenants/default/quota"))["bytes_kept"]
        await here.api.put("/v1/tenants/default/quota", json={"bytes": kept + 1000})
        refused = await here.post("/v1/jobs", 429, json={"tasks": ["é" * 600]})
        assert f"{kept:,} bytes of tasks and results of the tenant 'default' are kept" in refused["detail"]

        # when the answer of the first one has an artifact that does not
        await here.released(1)
        here.fleet.answer("j/0", artifact={"files": {"a.txt": "x" * 1000}})

        # then the second one waits, until an operator raises it
        async def waits() -> bool:
            return "and it may have" in (await here.get("/v1/jobs/j"))["reason"]

        await until(waits)
        assert here.fleet.submitted == ["j/0"]
        await here.api.put("/v1/tenants/default/quota", json={"bytes": kept + 9000})
        await here.released(1)
        here.fleet.answer("j/1", status="failed", reason="it broke", response=None)
        await here.wait_for("j", state="done")

        # and what is kept is what the database has
        await here.post("/v1/jobs/j/rerun")
        await here.released(1)
        bytes_kept = (await here.get("/v1/tenants/default/quota"))["bytes_kept"]
        with create_engine(f"sqlite:///{tmp_path}/jobs.sqlite").connect() as connection:
            rows = connection.execute(select(tasks.c.body, tasks.c.result)).all()
        assert bytes_kept == sum(len(body.encode()) + len((result or "").encode()) for body, result in rows)


async def test_a_quota_bounds_what_the_fleet_has_at_a_time(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        await here.api.put("/v1/tenants/default/quota", json={"tasks_at_once": 3})
        for name in "xy":
            await here.submit(4, job_id=name)
        await here.released(3)
        await settled()
        assert len(here.fleet.submitted) == 3

        async def says_so() -> bool:
            reasons = [(await here.get(f"/v1/jobs/{name}"))["reason"] for name in "xy"]
            return any("has 3 tasks in the fleet, as many as it may have at a time" in reason for reason in reasons)

        await until(says_so)

        # and as they end, others follow
        for number in range(8):
            await until(lambda: here.fleet.open, "a task")
            assert len(here.fleet.open) <= 3
            here.fleet.answer(next(iter(here.fleet.open)))
            assert len(here.fleet.submitted) <= number + 4
        for name in "xy":
            await here.wait_for(name, state="done", ok=4)


async def test_a_quota_bounds_tokens_a_day(tmp_path: Path) -> None:
    async with managed(tmp_path, manager_window=1) as here:
        # given a tenant that has used its tokens
        await here.api.put("/v1/tenants/default/quota", json={"tokens_a_day": 10})
        await here.submit(2, job_id="j")
        await here.released(1)
        answer(here, "j/0", 7)

        # then nothing more is released or taken, and it says until when
        await here.wait_for("j", ok=1)
        use = await here.get("/v1/tenants/default/quota")
        assert (use["tokens_today"], use["tokens_a_day"]) == (10, 10)
        day = use["tokens_reset_at"][:10]

        async def says_so() -> bool:
            reason: str = (await here.get("/v1/jobs/j"))["reason"]
            return f"has used 10 of its 10 tokens today: it goes on at {day} 00:00 UTC" in reason

        await until(says_so)
        refused = await here.api.post("/v1/jobs", json={"tasks": ["a"]})
        assert refused.status_code == 429
        assert int(refused.headers["Retry-After"]) <= 86_400
        assert here.fleet.submitted == ["j/0"]

        # and with a larger quota it goes on
        await here.api.put("/v1/tenants/default/quota", json={"tokens_a_day": 100})
        assert await here.released(1) == ["j/1"]


async def test_the_budget_of_a_tenant_holds_for_all_of_its_jobs(tmp_path: Path, prices: Path) -> None:
    async with managed(tmp_path, prices=prices) as here:
        await here.api.put("/v1/tenants/default/quota", json={"budget": "25"})
        await here.submit(3, job_id="x")
        await here.submit(3, job_id="y")
        await here.released(2)
        await settled()
        assert len(here.fleet.submitted) == 2
        for task_id in list(here.fleet.open):
            answer(here, task_id, 10)

        paused = [await here.wait_for(name, state="paused") for name in "xy"]
        assert "the budget of the tenant 'default' can't pay for the next task" in paused[0]["reason"]
        assert sum(Decimal(job["spent"]) for job in paused) == 20


async def test_a_job_waits_for_money_that_is_only_reserved(tmp_path: Path, prices: Path) -> None:
    async with managed(tmp_path, prices=prices) as here:
        # given a tenant whose whole budget is reserved
        await here.api.put("/v1/tenants/default/quota", json={"budget": "20"})
        await here.submit(2, job_id="x")
        assert await here.released(2) == ["x/0", "x/1"]

        # when another job comes, it is taken and waits
        assert (await here.submit(2, job_id="y"))["state"] == "queued"
        await settled()
        assert (await here.get("/v1/jobs/y"))["state"] == "queued"

        # then it gets what comes back, until the budget is spent: only then are jobs refused
        answer(here, "x/0", 5)
        answer(here, "x/1", 5)
        await until(lambda: "y/0" in here.fleet.open)
        answer(here, "y/0", 10)
        assert (await here.wait_for("y", state="paused"))["ok"] == 1
        refused = await here.post("/v1/jobs", 402, json={"tasks": ["a"]})
        assert "has spent 20.000000 of its budget of 20.000000" in refused["detail"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("prompt = nan", "prompt"),
        ("prompt = -1", "prompt"),
        ("samples = 0", "samples"),
        ("currency = ", "Invalid value"),
    ],
)
def test_prices_that_can_not_be_are_refused(tmp_path: Path, line: str, says: str) -> None:
    name = line.split(" = ")[0]
    path = tmp_path / "prices.toml"
    path.write_text("\n".join(line if one.startswith(f"{name} =") else one for one in SMALL.splitlines()))
    with pytest.raises(SettingsError, match=f"RATCHET_PRICES: .*{says}"):
        Prices.read(path)


def test_a_cost_is_rounded_up_to_a_micro_unit_and_has_an_end() -> None:
    cheap = AgentPrices(prompt=Decimal("0.15"), sampled=Decimal("0.6"), samples=1, max_tokens=10**9)
    assert cost(TaskUsage(prompt_tokens=1, sampled_tokens=0), cheap) == 1
    assert cost(TaskUsage(prompt_tokens=10, sampled_tokens=10), cheap) == 8
    dear = cheap.model_copy(update={"sampled": Decimal(10**8)})
    assert cost(most_tokens(Task(task_id="t", input="a"), dear), dear) == LARGEST


async def test_a_quota_bounds_open_tasks_that_run_again(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        await here.api.put("/v1/tenants/default/quota", json={"open_tasks": 3})
        for name in "jk":
            await here.submit(3, job_id=name)
            await here.post(f"/v1/jobs/{name}/cancel")
            for task_id in list(here.fleet.open):
                here.fleet.answer(task_id, status="failed", reason="x", response=None)
            await here.wait_for(name, released=0)

        await here.post("/v1/jobs/j/rerun")
        refused = await here.post("/v1/jobs/k/rerun", 429)

        assert "3 more" in refused["detail"]
        assert (await here.get("/v1/jobs/k"))["waiting"] == 0
