"""What the audit has seen of real requests, and what it must never hold."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from fastapi import APIRouter

from ratchet.http.access.audit import read_audit
from ratchet.http.access.roles import Role
from ratchet.http.operation import OPERATOR, Effect, operation
from ratchet.http.server.application import application
from ratchet.service.telemetry import JsonLines
from tests.ratchet.http.access.tokens_for_tests import Mint, bearer
from tests.ratchet.http.real_services import service_of, settings_of
from tests.waiting import until

TRAIN = {"agent_id": "small", "request_id": "r-1"}


@asynccontextmanager
async def trainer(folder: Path, mint: Mint, router: APIRouter | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """The real trainer's application, or one with this router in the place of its own; its audit is whole after it."""
    settings = settings_of("trainer", folder, api_public_keys=mint.keys.jwks)
    service = service_of(settings)
    app = application("trainer", [router] if router else service.routers(), settings, service.trouble)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client,
    ):
        yield client


def audited(folder: Path) -> list[dict[str, Any]]:
    return [fields for _, fields in read_audit(folder / "logs/audit/trainer")]


async def test_a_change_is_told_before_it_is_made_and_when_it_is_done(tmp_path: Path) -> None:
    mint = Mint(tmp_path / "keys")
    on_disk: list[list[str]] = []
    router = APIRouter()

    @router.post("/v1/train")
    @operation(OPERATOR, effect=Effect.ADDS)
    async def train() -> dict[str, str]:
        on_disk.append([line["event"] for line in audited(tmp_path)])
        return {}

    async with trainer(tmp_path, mint, router) as client:
        answer = await client.post("/v1/train", headers=bearer(mint.good(Role.OPERATOR, "night-shift")))

    change, done = audited(tmp_path)
    assert (answer.status_code, on_disk) == (200, [["change"]])
    assert (change["who"], change["role"], change["method"], change["path"]) == (
        "night-shift",
        "operator",
        "POST",
        "/v1/train",
    )
    assert (done["event"], done["change"], done["status"]) == ("done", change["sequence"], 200)
    assert len(change["token_id"]) == 32


async def test_it_says_what_the_change_was_about_and_how_it_ended(tmp_path: Path) -> None:
    mint = Mint(tmp_path / "keys")
    operator = bearer(mint.good(Role.OPERATOR))

    async with trainer(tmp_path, mint) as client:
        await client.post("/v1/train", headers=operator, json=TRAIN)
        await client.post("/v1/train", headers=operator, json={"agent_id": "nobody"})

    ends = [line for line in audited(tmp_path) if line["event"] == "done"]
    assert [line["status"] for line in ends] == [202, 422]
    assert ends[0]["concerns"] == {"run_id": "r-1", "agent_id": "small"}


async def test_what_can_t_be_audited_is_not_done(tmp_path: Path) -> None:
    mint = Mint(tmp_path / "keys")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/audit").write_text("in the way")

    async with trainer(tmp_path, mint) as client:
        answer = await client.post("/v1/train", headers=bearer(mint.good(Role.OPERATOR)), json=TRAIN)
        runs = await client.get("/v1/trainings", headers=bearer(mint.good(Role.OPERATOR)))

    assert (answer.status_code, answer.json()["type"]) == (503, "audit")
    assert "retry-after" in answer.headers
    assert runs.json()["items"] == []


async def test_refusals_are_told_with_who_and_why_and_reading_is_not(tmp_path: Path) -> None:
    mint = Mint(tmp_path / "keys")

    async with trainer(tmp_path, mint) as client:
        await client.get("/v1/trainings")
        await client.post("/v1/train", headers=bearer(mint.good(Role.SUBMITTER, "app")), json=TRAIN)
        await client.get("/v1/trainings", headers=bearer(mint.good(Role.VIEWER)))
        await client.get("/healthz")

    assert [(line["event"], line["who"], line["status"]) for line in audited(tmp_path)] == [
        ("refused", None, 401),
        ("refused", "app", 403),
    ]


async def test_what_comes_over_mcp_is_told_with_where_it_came_from(tmp_path: Path) -> None:
    settings = settings_of("trainer", tmp_path)
    app = application("trainer", service_of(settings).routers(), settings, lambda: None)
    call = {"name": "start_training", "arguments": {"agent_id": "small"}}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}

    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, client=("192.0.2.7", 4711))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await client.post("/mcp", json=asked, headers={"Accept": "application/json, text/event-stream"})

    found = audited(tmp_path)
    assert [(line["event"], line["path"], line["from"]) for line in found] == [
        ("change", "/v1/train", "192.0.2.7"),
        ("done", "/v1/train", "192.0.2.7"),
    ]


async def test_a_token_is_in_no_file_no_log_and_no_answer_wherever_it_was_put(tmp_path: Path) -> None:
    mint = Mint(tmp_path / "keys")
    good, bad = mint.good(Role.OPERATOR), Mint(tmp_path / "other").good(Role.OPERATOR)
    told = io.StringIO()
    handler = logging.StreamHandler(told)
    handler.setFormatter(JsonLines("trainer"))
    root = logging.getLogger()
    root.addHandler(handler)
    level, root.level = root.level, logging.DEBUG
    said = ""

    async with trainer(tmp_path, mint) as client:
        for token in (good, bad):
            for headers in (bearer(token), {"Authorization": token}, {"X-Token": token, "Cookie": token}, {}):
                for method, path in (("GET", f"/v1/trainings/{token}"), ("GET", f"/{token}"), ("POST", "/v1/train")):
                    body = {"agent_id": token, "request_id": token, "hyperparameters": {"key": token}}
                    answer = await client.request(
                        method, path, params={"token": token, "cursor": token}, json=body, headers=headers
                    )
                    said += answer.text + str(answer.headers)
        await client.post("/v1/train", headers=bearer(good), content=good)
        logging.getLogger("anything").info("a library logs %s", good)
    root.removeHandler(handler)
    root.level = level

    written = "".join(path.read_text() for path in (tmp_path / "logs").rglob("*") if path.is_file())
    for token in (good, bad):
        signature = token.rpartition(".")[2]
        for place in (told.getvalue(), written, said):
            assert signature not in place
    assert "<token>" in written
    assert "<token>" in told.getvalue()


async def test_work_is_one_line_with_its_end(tmp_path: Path) -> None:
    settings = settings_of("orchestrator", tmp_path)
    router = APIRouter()

    @router.post("/v1/tasks")
    @operation(OPERATOR, effect=Effect.WORKS)
    async def tasks() -> dict[str, str]:
        return {}

    app = application("orchestrator", [router], settings, lambda: None)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await asyncio.gather(*(client.post("/v1/tasks", json={}) for _ in range(20)))

    found = [fields for _, fields in read_audit(tmp_path / "logs/audit/orchestrator")]
    assert [(line["event"], line["who"], line["status"]) for line in found] == [("work", "local", 200)] * 20
    assert json.dumps(found)


async def test_work_is_taken_again_as_soon_as_it_can_be_audited(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    in_the_way = tmp_path / "logs/audit"
    in_the_way.write_text("")

    async with orchestrator(tmp_path) as client:
        await client.post("/v1/tasks", json={})
        refused = await until_status(client, 503)
        in_the_way.unlink()
        taken = await client.post("/v1/tasks", json={})
        await client.post("/v1/tasks", json={})

    assert (refused.json()["type"], taken.status_code) == ("audit", 200)
    found = [fields for _, fields in read_audit(in_the_way / "orchestrator")]
    assert [line["event"] for line in found] == ["change", "done", "work"]


async def test_work_whose_deadline_passed_is_a_line_too(tmp_path: Path) -> None:
    async with orchestrator(tmp_path) as client:
        late = await client.post("/v1/feedback", headers={"X-Request-Timeout": "0.01"})

    found = [fields for _, fields in read_audit(tmp_path / "logs/audit/orchestrator")]
    assert late.status_code == 504
    assert [(line["event"], line["path"], line["status"]) for line in found] == [("work", "/v1/feedback", 504)]


@asynccontextmanager
async def orchestrator(folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Its application with a route that answers at once, and one that never does."""
    router = APIRouter()

    @router.post("/v1/tasks")
    @operation(OPERATOR, effect=Effect.WORKS)
    async def tasks() -> dict[str, str]:
        return {}

    @router.post("/v1/feedback")
    @operation(OPERATOR, effect=Effect.WORKS)
    async def feedback() -> None:
        await asyncio.Event().wait()

    app = application("orchestrator", [router], settings_of("orchestrator", folder), lambda: None)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client,
    ):
        yield client


async def until_status(client: httpx.AsyncClient, status: int) -> httpx.Response:
    async def answered() -> httpx.Response | None:
        answer = await client.post("/v1/tasks", json={})
        return answer if answer.status_code == status else None

    return await until(answered, f"a status of {status}")
