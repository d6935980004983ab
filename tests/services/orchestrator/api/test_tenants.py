"""Tenants kept apart: every row of the orchestrator's matrix × every role, asked by a task's tenant and by others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ratchet.http.access.roles import Role
from ratchet.logs.best_answer import result_of
from ratchet.logs.groups import teaches_nothing
from ratchet.logs.tenants import DEFAULT, AgentTenants, key_of, own_id, tenant_of
from schemas import Task
from tests.ratchet.http.access.tokens_for_tests import bearer
from tests.ratchet.http.real_services import NAMES, rules_of
from tests.services.orchestrator.api import test_ownership
from tests.services.orchestrator.api.chatting import served
from tests.services.orchestrator.api.test_ownership import BODIES, TASK, Asking
from tests.waiting import until

KEY = "tenant:acme/ann/1"
ROWS = [row for row in rules_of("orchestrator") if row.operation.roles is not None]
MOVES = ("promote", "rollback", "freeze", "unfreeze", "reanchor")
LONG = "/v1/events"
"""A stream, which has a test of its own."""


@asynccontextmanager
async def asking(folder: Path, agent_tenants: str = "small=acme", **settings: Any) -> AsyncIterator[Asking]:
    """The task of Ann of acme is answered. The agent `small` is acme's, and `other` is for all."""
    async with test_ownership.asking(folder, "acme", agent_tenants=agent_tenants, **settings) as asked:
        yield asked


def test_each_row_with_an_id_in_its_path_says_how_far_a_tenant_reaches() -> None:
    own = {row.route for row in ROWS if row.operation.reach == "own" and "{" in row.path}

    assert own == {
        "DELETE /v1/tasks/{task_id}",
        "GET /v1/adapters/{agent_id}",
        "GET /v1/adapters/{agent_id}/{version}",
        "GET /v1/models/{model}",
        "GET /v1/tasks/{task_id}",
        "POST /v1/approvals/{approval_id}",
        *(f"{method} /v1/manager/{{path}}" for method in ("GET", "POST", "DELETE")),
        *(
            f"POST /v1/adapters/{{agent_id}}/{move}"
            for move in ("promote", "rollback", "freeze", "unfreeze", "reanchor")
        ),
        *(f"POST /v1/cascades/{{agent_id}}/{move}" for move in ("freeze", "unfreeze", "share")),
    }
    for service in NAMES:
        for row in rules_of(service):
            submits = row.operation.roles is not None and Role.SUBMITTER in row.operation.roles
            assert not submits or row.operation.reach != "fleet", f"{row.route}: every submitter is bound to a tenant"


@pytest.mark.parametrize("role", [Role.VIEWER, Role.SUBMITTER, Role.OPERATOR, Role.ADMIN, Role.RUNNER])
async def test_every_row_tells_another_tenant_nothing_whatever_its_role_and_whatever_it_calls_the_task(
    tmp_path: Path, role: Role
) -> None:
    async with asking(tmp_path) as asked:
        for row in sorted(ROWS, key=lambda row: row.route in BODIES):  # those that make a task of their own come last
            if row.path.startswith(LONG):
                continue
            for tenant in ("globex", DEFAULT):
                for task_id in (TASK["task_id"], KEY):
                    answer = await asked.about_the_task(row, role, "ann", tenant, task_id)

                    assert "SECRET" not in answer.text and "better" not in answer.text, (row.route, tenant, task_id)
                    assert row.route in BODIES or answer.status_code != 200 or "acme" not in answer.text, row.route
                    if row.allows(role) and row.operation.reach == "fleet":
                        assert answer.status_code == 403, row.route
                    elif row.allows(role) and "{" in row.path:
                        assert answer.status_code in (404, 422), (row.route, answer.text)
                    elif not row.allows(role):
                        assert answer.status_code == 403, row.route


async def test_the_own_tenant_and_those_who_are_of_none_see_it(tmp_path: Path) -> None:
    async with asking(tmp_path) as asked:
        own = {
            role: (await asked.call("GET", f"/v1/tasks/{TASK['task_id']}", role, "ann", "acme")).json()
            for role in (Role.SUBMITTER, Role.VIEWER, Role.OPERATOR)
        }
        of_all = await asked.call("GET", f"/v1/tasks/{KEY}", Role.VIEWER, "vic", None)
        namesake = await asked.call("GET", f"/v1/tasks/{TASK['task_id']}", Role.SUBMITTER, "bob", "acme")
        lists = {
            tenant: [
                item["task_id"]
                for item in (await asked.call("GET", "/v1/tasks", Role.VIEWER, "vic", tenant)).json()["items"]
            ]
            for tenant in ("acme", "globex", DEFAULT, None)
        }

        assert {told["task_id"] for told in own.values()} == {TASK["task_id"]}
        assert {told["reference"] for told in own.values()} == {"SECRET reference"}
        assert of_all.json()["task_id"] == KEY
        assert namesake.status_code == 404
        assert lists == {"acme": ["ann/1"], "globex": [], DEFAULT: [], None: [KEY]}


async def test_the_same_id_in_two_tenants_is_two_tasks_and_a_key_is_no_id(tmp_path: Path) -> None:
    async with asking(tmp_path, agent_tenants="") as asked:
        globex = await asked.call(
            "POST", "/v1/tasks?wait_s=30", Role.SUBMITTER, "ann", "globex", json=TASK | {"input": "x"}
        )
        default = await asked.call("POST", "/v1/tasks?wait_s=30", Role.SUBMITTER, "ann", None, json=TASK)
        key = await asked.call("POST", "/v1/tasks", Role.SUBMITTER, "ann", None, json=TASK | {"task_id": KEY})
        session = await asked.call(
            "POST", "/v1/tasks", Role.SUBMITTER, "ann", None, json={"input": "x", "session_id": "tenant:acme/s"}
        )

        assert (globex.status_code, default.status_code) == (200, 200)
        assert [line["task_id"] for line in asked.fleet.assigned()] == [KEY, "tenant:globex/ann/1", "ann/1"]
        assert (key.status_code, session.status_code) == (422, 422)


async def test_a_tenants_tasks_teach_its_own_agents_alone_unless_an_agent_learns_from_all(tmp_path: Path) -> None:
    for number, (settings, taught) in enumerate(
        (
            ({"agent_tenants": ""}, False),
            ({"agent_tenants": "small=acme"}, True),
            ({"agent_tenants": "", "shared_learning": ("small",)}, True),
        )
    ):
        async with asking(tmp_path / str(number), **settings) as asked:
            lines = asked.fleet.logged()
            result = result_of(lines)
            (agent,) = [
                one
                for one in (await asked.call("GET", "/v1/status", Role.VIEWER, "vic", None)).json()["agents"]
                if one["agent_id"] == "small"
            ]
            assert agent["shared_learning"] is ("shared_learning" in settings)

        why = "its asker, or its tenant, keeps it from teaching"
        assert {teaches_nothing(line) == why for line in lines} == {not taught}
        assert {line.kept_apart for line in lines} == {None if taught else True}
        shared = True if "shared_learning" in settings else None
        assert (result.metadata.model_extra or {}).get("shared_learning") == shared


async def test_an_agent_of_one_tenant_answers_no_other(tmp_path: Path) -> None:
    async with asking(tmp_path) as asked:
        named = await asked.call(
            "POST", "/v1/tasks", Role.SUBMITTER, "bob", "globex", json={"input": "x", "agent_id": "small"}
        )
        await asked.call("POST", "/v1/tasks", Role.SUBMITTER, "bob", "globex", json={"task_id": "t", "input": "x"})
        models = (await asked.call("GET", "/v1/models", Role.SUBMITTER, "bob", "globex")).json()["data"]
        promoted = await asked.call(
            "POST", "/v1/adapters/other/freeze", Role.OPERATOR, "bob", "globex", json={"reason": "mine"}
        )

        assert named.status_code == 422 and "small" not in named.json()["detail"].partition("has")[2]
        assert [work.task_id for work in await asked.fleet.work(agent="other")] == ["tenant:globex/t"]
        assert {model["id"].partition("@")[0] for model in models} == {"other"}
        assert promoted.status_code == 404


async def test_events_are_told_to_the_own_tenant_by_its_own_ids(tmp_path: Path) -> None:
    async with asking(tmp_path, agent_tenants="") as asked, served(asked.fleet) as address:
        heard: dict[str | None, list[str]] = {"acme": [], "globex": [], None: []}

        async def listen(client: httpx.AsyncClient, tenant: str | None) -> None:
            headers = bearer(asked.mint.good(Role.VIEWER, "vic", tenant))
            async with client.stream("GET", f"{address}/v1/events", headers=headers) as stream:
                async for line in stream.aiter_lines():
                    if line.startswith("data: "):
                        heard[tenant].append(json.loads(line[6:]).get("task_id", "another event"))

        async with httpx.AsyncClient(timeout=30) as client, asyncio.TaskGroup() as group:
            listening = [group.create_task(listen(client, tenant)) for tenant in heard]
            hub = asked.fleet.orchestrator.parts.hub
            await until(lambda: hub.clients == len(heard))
            for tenant in ("acme", "globex"):
                sent = TASK | {"task_id": "t"}
                await asked.call("POST", "/v1/tasks?wait_s=30", Role.SUBMITTER, "ann", tenant, json=sent)
            await until(lambda: bool(heard["acme"] and heard["globex"]) and "tenant:globex/t" in heard[None])
            for task in listening:
                task.cancel()

    assert (heard["acme"], heard["globex"]) == (["t"], ["t"])


async def test_results_of_tenants_are_not_in_the_queue_that_all_clients_read(tmp_path: Path) -> None:
    async with asking(tmp_path, agent_tenants="") as asked:
        await asked.fleet.submit(Task(task_id="t", input="x"))
        await asked.fleet.results()

        told = [json.loads(one.body)["task_id"] for one in asked.fleet.bus.deliveries_published("results")]
        assert told == ["t"]


def test_keys_are_told_apart_and_back() -> None:
    assert (key_of(DEFAULT, "a/b"), key_of("acme", "a/b")) == ("a/b", "tenant:acme/a/b")
    assert key_of("acme", "tenant:acme/a/b") == "tenant:acme/a/b"
    for tenant in (DEFAULT, "acme"):
        assert (tenant_of(key_of(tenant, "a/b")), own_id(key_of(tenant, "a/b"))) == (tenant, "a/b")
    agents = AgentTenants({"small": "acme"}, ("other",))
    assert [agents.may_use("globex", agent) for agent in ("small", "other")] == [False, True]
