"""Whose a task is: every row of the orchestrator's matrix × every role, asked about a task of somebody's."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from ratchet.http.access.matrix import AccessRule
from ratchet.http.access.roles import Role
from schemas.messages.task import Task
from tests.ratchet.http.access.tokens_for_tests import Mint, bearer
from tests.ratchet.http.real_services import rules_of
from tests.services.orchestrator.api.calling import answering, api_of
from tests.services.orchestrator.house import House, house

TASK: dict[str, Any] = {
    "task_id": "ann/1",
    "input": "SECRET question",
    "reference": "SECRET reference",
    "criteria": "SECRET criteria",
    "samples": 2,
}
BODIES: dict[str, dict[str, Any]] = {
    "POST /v1/tasks": TASK | {"input": "x"},
    "POST /v1/deliberate": TASK | {"input": "x"},
    "POST /v1/chat/completions": {
        "model": "small",
        "messages": [{"role": "user", "content": "x"}],
        "metadata": {"task_id": "ann/1"},
    },
    "POST /v1/responses": {"model": "small", "input": "x", "metadata": {"task_id": "ann/1"}},
    "POST /v1/feedback": {"task_id": "ann/1", "score": 1},
    "POST /v1/approvals/{approval_id}": {"decision": "approve"},
}
"""What names the task, where a path does not."""
ELSEWHERE = ("/v1/events", "/v1/messages", "/v1/dead-letters")
"""test_socket.py and test_tenants.py have the events. Anthropic's messages name no task; dead letters need a broker."""
ROWS = [
    row for row in rules_of("orchestrator") if row.operation.roles is not None and not row.path.startswith(ELSEWHERE)
]


class Asking:
    def __init__(self, fleet: House, client: httpx.AsyncClient, mint: Mint) -> None:
        self.fleet = fleet
        self.client = client
        self.mint = mint

    async def call(
        self, method: str, path: str, role: Role, name: str, tenant: str | None = None, **given: Any
    ) -> httpx.Response:
        headers = bearer(self.mint.good(role, name, tenant))
        return await self.client.request(method, path, headers=headers, **given)

    async def about_the_task(
        self, row: AccessRule, role: Role, name: str, tenant: str | None = None, task_id: str = TASK["task_id"]
    ) -> httpx.Response:
        path = row.path.replace("{task_id}", task_id).replace("{agent_id}", "small").replace("{", "").replace("}", "")
        body = json.loads(json.dumps(BODIES.get(row.route, {})).replace(TASK["task_id"], task_id))
        waits = {"wait_s": 0} if tenant and row.route == "POST /v1/deliberate" else {}
        given = {"json": body, "params": waits} if row.method == "POST" else {}
        return await self.call(row.method, path, role, name, tenant, **given)


@asynccontextmanager
async def asking(folder: Path, tenant: str | None = None, **settings: Any) -> AsyncIterator[Asking]:
    """The task of Ann, of this tenant, is answered."""
    mint = Mint(folder / "keys")
    settings |= {"api_public_keys": mint.keys.jwks}
    async with house(folder, **settings) as fleet, api_of(fleet) as client, answering(fleet):
        asked = Asking(fleet, client, mint)
        answer = await asked.call("POST", "/v1/tasks?wait_s=30", Role.SUBMITTER, "ann", tenant, json=TASK)
        assert (answer.json()["response"], answer.json()["task_id"]) == ("better", TASK["task_id"])
        yield asked


async def test_every_row_tells_a_foreign_submitter_nothing_of_a_task_and_the_others_what_it_told(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path) as asked:
        own = {}
        for row in ROWS:
            if row.allows(Role.SUBMITTER):
                foreign = await asked.about_the_task(row, Role.SUBMITTER, "bob")
                assert "SECRET" not in foreign.text and "better" not in foreign.text, row.route
                if Role.SUBMITTER in row.operation.own_only:
                    listed = foreign.status_code == 200 and foreign.json() in (
                        {"items": [], "next": None},
                        {"items": []},
                    )
                    assert listed or foreign.status_code in (404, 409), row.route
                own[row.route] = (await asked.about_the_task(row, Role.SUBMITTER, "ann")).text
            for role in (Role.VIEWER, Role.OPERATOR):
                if (
                    row.allows(role)
                    and row.path in ("/v1/tasks", "/v1/tasks/{task_id}", "/v1/log")
                    and row.method == "GET"
                ):
                    assert "SECRET question" in (await asked.about_the_task(row, role, "bob")).text, row.route

        assert "SECRET reference" in own["GET /v1/tasks/{task_id}"]
        assert "SECRET question" in own["GET /v1/tasks"] and "SECRET reference" not in own["GET /v1/tasks"]
        assert "better" in own["POST /v1/tasks"]


def test_each_row_that_reaches_tasks_says_whose_for_a_submitter() -> None:
    of_tasks = {row.route for row in ROWS if "task_id" in row.path or row.route in BODIES} | {"GET /v1/tasks"}
    of_tasks |= {"GET /v1/approvals", "POST /v1/approvals/{approval_id}"}
    managers = {row.route for row in ROWS if row.path.startswith("/v1/manager/")}  # whose jobs they are it says itself
    own = {row.route for row in ROWS if Role.SUBMITTER in row.operation.own_only} - managers

    assert own == of_tasks
    assert all(row.operation.own_only <= {Role.SUBMITTER} for row in ROWS)


async def test_a_task_that_came_without_a_token_is_no_submitters(tmp_path: Path) -> None:
    async with asking(tmp_path) as asked:
        await asked.fleet.submit(Task(task_id="queued", input="SECRET"))
        await asked.fleet.work(2)

        roles = (Role.SUBMITTER, Role.VIEWER, Role.OPERATOR)
        statuses = [(await asked.call("GET", "/v1/tasks/queued", role, "ann")).status_code for role in roles]

        assert statuses == [404, 200, 200]


async def test_whose_a_task_is_survives_a_restart_that_builds_the_index_again(tmp_path: Path) -> None:
    async with asking(tmp_path) as asked:
        logs = asked.fleet.settings.logs_dir
    for file in logs.glob("index.sqlite*"):
        file.unlink()

    async with house(tmp_path, api_public_keys=asked.mint.keys.jwks) as fleet, api_of(fleet) as client:
        again = Asking(fleet, client, asked.mint)
        lists = [
            (await again.call("GET", "/v1/tasks", Role.SUBMITTER, name)).json()["items"] for name in ("ann", "bob")
        ]

    assert [[item["task_id"] for item in items] for items in lists] == [["ann/1"], []]


async def test_an_index_of_the_orchestrator_before_is_used_on_and_its_tasks_are_nobodys(tmp_path: Path) -> None:
    async with asking(tmp_path) as asked:
        index = asked.fleet.settings.logs_dir / "index.sqlite"
    with sqlite3.connect(index) as db:
        db.execute("DROP INDEX owned_tasks")
        db.execute("ALTER TABLE tasks DROP COLUMN owner")

    async with house(tmp_path, api_public_keys=asked.mint.keys.jwks) as fleet, api_of(fleet) as client:
        again = Asking(fleet, client, asked.mint)
        answers = [await again.call("GET", "/v1/tasks/ann/1", role, "ann") for role in (Role.SUBMITTER, Role.VIEWER)]

    assert [answer.status_code for answer in answers] == [404, 200]
