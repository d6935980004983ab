"""Jobs and agents of tenants: each has its own, under its own ids, and what others have is as if it were not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ratchet.http.access.matrix import AccessRule
from ratchet.http.access.roles import Role
from schemas.messages.task import Task
from services.manager.submission import parse_task_id
from tests.ratchet.http.access.tokens_for_tests import Mint, bearer
from tests.ratchet.http.real_services import rules_of
from tests.services.manager.managed import Managed, managed
from tests.services.manager.test_agents import REPORT, register

TENANTS: dict[str, Any] = {"tenants": ("acme", "globex"), "agent_tenants": "coder=globex"}


def as_one_of(house: Managed, mint: Mint, role: Role, name: str, tenant: str | None) -> None:
    house.api.headers.update(bearer(mint.good(role, name, tenant)))


@pytest.fixture
def mint(tmp_path: Path) -> Mint:
    return Mint(tmp_path / "keys")


def settings(mint: Mint) -> dict[str, Any]:
    return TENANTS | {"api_public_keys": mint.keys.jwks, "api_hosts": ("127.0.0.1",)}


async def test_lists_have_nothing_of_another_tenants_jobs(tmp_path: Path, mint: Mint) -> None:
    async with managed(tmp_path, **settings(mint)) as house:
        as_one_of(house, mint, Role.SUBMITTER, "ann", "globex")
        await house.submit(job_id="mine")

        for role in (Role.VIEWER, Role.SUBMITTER, Role.OPERATOR):
            as_one_of(house, mint, role, "ann", "acme")
            assert (await house.get("/v1/jobs"))["items"] == (await house.get("/v1/usage"))["items"] == []
        assert (await house.get("/v1/tenants/acme/quota"))["is_open"] == 0


async def test_a_submitter_of_a_tenant_is_shown_the_usage_and_an_agents_figures_of_its_own_jobs(
    tmp_path: Path, mint: Mint
) -> None:
    async with managed(tmp_path, **settings(mint)) as house:
        as_one_of(house, mint, Role.OPERATOR, "op", "acme")
        await register(house)
        as_one_of(house, mint, Role.RUNNER, "r-1", None)
        await house.post("/v1/runner-reports", json={"runner": "r-1", "agents": [REPORT]})
        as_one_of(house, mint, Role.SUBMITTER, "ann", "acme")
        await house.submit(1, job_id="j", agent_id="bot")
        await house.released(1)
        house.fleet.answer("tenant:acme/j/0", score=1.0, usage={"prompt_tokens": 2, "sampled_tokens": 3})
        await house.wait_for("j", state="done")

        found = {}
        for role, name in ((Role.SUBMITTER, "ann"), (Role.SUBMITTER, "bob"), (Role.OPERATOR, "op")):
            as_one_of(house, mint, role, name, "acme")
            figures = await house.get("/v1/agents/bot/metrics")
            used = [one["key"] for one in (await house.get("/v1/usage?by=job"))["items"]]
            found[name] = (used, *(figures[one] for one in ("ok", "mean_score", "prompt_tokens", "sampled_tokens")))
        assert found == {"ann": (["j"], 1, 1.0, 2, 3), "bob": ([], 0, None, 0, 0), "op": (["j"], 1, 1.0, 2, 3)}


async def test_one_id_in_two_tenants_is_two_jobs_and_each_is_answered_by_its_own_ids(
    tmp_path: Path, mint: Mint
) -> None:
    async with managed(tmp_path, **settings(mint)) as house:
        for tenant in ("acme", None):
            as_one_of(house, mint, Role.SUBMITTER, "ann", tenant)
            job = await house.submit(1, job_id="monday")
            assert (job["job_id"], job["tenant"]) == ("monday", tenant or "ann")
        assert sorted(await house.released(2)) == ["monday/0", "tenant:acme/monday/0"]
        for task_id in list(house.fleet.open):
            house.fleet.answer(task_id, response=task_id)

        for tenant, key in (("acme", "tenant:acme/monday/0"), (None, "monday/0")):
            as_one_of(house, mint, Role.SUBMITTER, "ann", tenant)
            await house.wait_for("monday", state="done")
            (one,) = (await house.get("/v1/jobs/monday/results"))["items"]
            assert (one["task_id"], one["result"]["task_id"]) == ("monday/0", "monday/0")
            assert one["result"]["response"] == key

        # and who sees all tenants knows both by their keys
        as_one_of(house, mint, Role.ADMIN, "root", None)
        assert {one["job_id"] for one in (await house.get("/v1/jobs"))["items"]} == {"monday", "tenant:acme/monday"}
        as_one_of(house, mint, Role.OPERATOR, "op", None)
        assert (await house.get("/v1/jobs/tenant:acme/monday"))["tenant"] == "acme"
        (one,) = (await house.get("/v1/jobs/tenant:acme/monday/results"))["items"]
        assert one["task_id"] == "tenant:acme/monday/0"
        await house.post("/v1/jobs/tenant:acme/monday/rerun")


async def test_a_job_for_an_agent_of_another_tenant_is_a_404(tmp_path: Path, mint: Mint) -> None:
    async with managed(tmp_path, **settings(mint)) as house:
        as_one_of(house, mint, Role.SUBMITTER, "ann", "globex")
        await register(house, "ours")
        await register(house, "coders", model="coder")
        as_one_of(house, mint, Role.OPERATOR, "op", None)
        await register(house, "for-all")
        ready = [{"name": name, "revision": 1, "state": "ready"} for name in ("ours", "coders", "for-all")]
        await house.post("/v1/runner-reports", json={"runner": "r-1", "agents": ready})

        as_one_of(house, mint, Role.SUBMITTER, "ann", "acme")
        for agent in ("ours", "coder", "coders", "nobody"):
            refused = await house.post("/v1/jobs", 404, json={"agent_id": agent, "tasks": ["x"]})
            assert "not of this fleet (small)" in refused["detail"]
        for path in ("/v1/agents/ours", "/v1/agents/ours/metrics"):
            await house.get(path, 404)
        assert (await house.api.patch("/v1/agents/ours", json={"kind": "evaluation"})).status_code == 404
        assert (await house.api.delete("/v1/agents/ours")).status_code == 404
        assert (await house.api.delete("/v1/agents/for-all")).status_code == 404
        assert [one["name"] for one in (await house.get("/v1/agents"))["items"]] == ["for-all"]
        await register(house, "mine", 404, model="coder")

        # and one for all is used by each tenant, whose figures alone it is shown
        await house.submit(2, agent_id="for-all", job_id="j")
        await house.released(2)
        task: Task = house.fleet.open["tenant:acme/j/0"]
        assert (task.agent_id, task.registered_agent) == ("small", "for-all")
        assert (await house.get("/v1/agents/for-all/metrics"))["released"] == 2
        as_one_of(house, mint, Role.SUBMITTER, "bob", "globex")
        assert (await house.get("/v1/agents/for-all/metrics"))["released"] == 0


IDS = {"{job_id}": "mine", "{name}": "bot", "{tenant}": "globex"}
BODIES: dict[str, Any] = {
    "POST /v1/jobs/{job_id}/tasks": {"first": 1, "tasks": ["x"]},
    "PATCH /v1/agents/{name}": {"kind": "simulation"},
    "PUT /v1/tenants/{tenant}/quota": {"weight": 2},
}
WITH_AN_ID = [row for row in rules_of("manager") if row.operation.roles is not None and "{" in row.path]


async def test_every_row_with_an_id_tells_a_foreign_caller_nothing_and_its_own_what_it_asks(
    tmp_path: Path, mint: Mint
) -> None:
    async with managed(tmp_path, **settings(mint)) as house:
        # given a job and an agent of Ann of globex
        as_one_of(house, mint, Role.SUBMITTER, "ann", "globex")
        await register(house)
        await house.post("/v1/jobs", json={"job_id": "mine", "tasks": ["x"], "more": True})

        async def status(row: AccessRule, role: Role, name: str, tenant: str | None, job: str = "mine") -> int:
            as_one_of(house, mint, role, name, tenant)
            ids = IDS | {"{job_id}": job}
            path = "/".join(ids.get(part, part) for part in row.path.split("/"))
            answer = await house.api.request(row.method, path, json=BODIES.get(row.route))
            return answer.status_code

        # then each route × role of another tenant, and each submitter that is not Ann, meets nothing
        assert len(WITH_AN_ID) == 13
        for row in WITH_AN_ID:
            allowed = row.operation.roles or frozenset()
            for role in Role:
                nothing = 404 if role in allowed and row.operation.reach == "own" else 403
                for job in ("mine", "tenant:globex/mine"):
                    assert await status(row, role, "ann", "acme", job) == nothing, (row.route, role)
            if Role.SUBMITTER in allowed:
                assert await status(row, Role.SUBMITTER, "bob", "globex") == 404, row.route

        # and who may see it, does
        for row in sorted(WITH_AN_ID, key=lambda one: one.method == "DELETE"):
            for role in row.operation.roles or ():
                bound = "globex" if row.operation.reach == "own" else None
                found = await status(row, role, "ann", bound)
                assert found in (200, 409), (row.route, role, found)


async def test_who_is_called_as_a_tenant_does_not_use_up_that_tenants_quota(tmp_path: Path, mint: Mint) -> None:
    async with managed(tmp_path, **settings(mint)) as house:
        as_one_of(house, mint, Role.SUBMITTER, "acme", None)

        refused = await house.post("/v1/jobs", 403, json={"tasks": ["x"]})

    assert "a tenant is called 'acme', too" in refused["detail"]


@pytest.mark.parametrize("job", ["j", "tenant:acme/j"])
@pytest.mark.parametrize("attempt", [1, 2])
def test_the_id_of_a_task_says_whose_job_it_is_of(job: str, attempt: int) -> None:
    task_id = f"{job}/7" if attempt == 1 else f"{job}/7/{attempt}"

    assert parse_task_id(task_id) == (job, 7, attempt)


async def test_the_name_of_an_agent_that_had_jobs_stays_its_tenants(tmp_path: Path, mint: Mint) -> None:
    async with managed(tmp_path, **settings(mint)) as house:
        # given an agent that was removed, and a job of it with a task that failed
        as_one_of(house, mint, Role.OPERATOR, "op", "acme")
        await register(house, "bot")
        as_one_of(house, mint, Role.RUNNER, "r", None)
        await house.post("/v1/runner-reports", json={"runner": "r", "agents": [REPORT]})
        as_one_of(house, mint, Role.SUBMITTER, "ann", "acme")
        await house.submit(1, job_id="j", agent_id="bot")
        house.fleet.answer(*await house.released(1), status="failed", reason="x", response=None)
        await house.wait_for("j", state="done")
        as_one_of(house, mint, Role.OPERATOR, "op", "acme")
        await house.api.delete("/v1/agents/bot")

        # then it runs nothing again, and another tenant can't take the name
        assert "was removed" in (await house.post("/v1/jobs/j/rerun", 409))["detail"]
        as_one_of(house, mint, Role.OPERATOR, "op", "globex")
        assert "was somebody else's" in (await register(house, "bot", 409))["detail"]
        as_one_of(house, mint, Role.OPERATOR, "op", "acme")
        await register(house, "bot")
