"""The agent's routes: answered by the same engine as the queue, and nothing loaded or logged by them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx

from ratchet.adapters.folder import adapter_sha256
from ratchet.bus.topology import ADAPTER_REPORTS, RESPONSES, events_topic
from ratchet.http.server.application import application
from ratchet.service.errors import EngineError, PromptTooLong
from schemas.messages.adapter_event import AdapterEvent, ServedAdapter
from services.agent.settings import AgentSettings
from services.agent.worker import AgentWorker
from tests.services.agent.test_agent_worker import ScriptedEngine, agent
from tests.waiting import until


def client(worker: AgentWorker, settings: AgentSettings) -> httpx.AsyncClient:
    app = application("agent", worker.routers(), settings, worker.trouble)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


async def test_a_prompt_is_answered_as_often_as_asked_and_nothing_is_published(settings: AgentSettings) -> None:
    async with agent(settings, ScriptedEngine()) as (worker, bus), client(worker, settings) as api:
        answer = await api.post("/v1/generate", json={"input": "dbca", "sampling": {"n": 3}})

    body = answer.json()
    assert answer.status_code == 200
    assert [sample["text"] for sample in body["samples"]] == ["dbca"] * 3
    assert (body["agent_id"], body["adapter_version"], body["adapter_sha256"], body["engine"]) == (
        "small",
        "v1.0.0",
        None,
        "echo",
    )
    assert bus.deliveries_published(RESPONSES) == []


async def test_chat_messages_are_a_prompt_too(settings: AgentSettings) -> None:
    async with agent(settings, ScriptedEngine()) as (worker, _), client(worker, settings) as api:
        answer = await api.post("/v1/generate", json={"input": [{"role": "user", "content": "ba"}]})

    assert answer.json()["samples"] == [{"text": "ba", "finish_reason": "stop", "tokens": None}]


async def test_the_announced_primary_answers_what_names_no_version(
    settings: AgentSettings, write_adapter: Callable[..., Path]
) -> None:
    sha256 = adapter_sha256(write_adapter("v1.0.1"))
    event = AdapterEvent(
        agent_id="small",
        event="standing",
        revision=1,
        primary="v1.0.1",
        adapters=(ServedAdapter(version="v1.0.1", sha256=sha256),),
    )

    async with agent(settings, ScriptedEngine()) as (worker, bus), client(worker, settings) as api:
        await bus.broadcast(events_topic("small"), event.encode(), type=AdapterEvent.TYPE, message_id="e")
        await until(lambda: bus.deliveries_published(ADAPTER_REPORTS))
        named_none = (await api.post("/v1/generate", json={"input": "x"})).json()
        base = (await api.post("/v1/generate", json={"input": "x", "adapter_version": "v1.0.0"})).json()
        listed = (await api.get("/v1/adapters")).json()

    assert (named_none["adapter_version"], named_none["adapter_sha256"]) == ("v1.0.1", sha256)
    assert (base["adapter_version"], base["adapter_sha256"]) == ("v1.0.0", None)
    assert [(one["version"], one["is_primary"]) for one in listed["items"]] == [("v1.0.0", False), ("v1.0.1", True)]


async def test_a_version_on_disk_is_not_loaded_by_a_call(
    settings: AgentSettings, write_adapter: Callable[..., Path]
) -> None:
    write_adapter("v1.0.1")
    engine = ScriptedEngine()

    async with agent(settings, engine) as (worker, _), client(worker, settings) as api:
        answer = await api.post("/v1/generate", json={"input": "x", "adapter_version": "v1.0.1"})

    assert (answer.status_code, answer.json()["type"]) == (409, "not-loaded")
    assert engine.adapters() == frozenset()
    assert engine.calls == []


async def test_what_the_model_can_t_do_is_said(settings: AgentSettings) -> None:
    engine = ScriptedEngine()
    engine.errors = {"long": PromptTooLong("too long by 7 tokens"), "odd": EngineError("out of memory")}

    async with agent(settings, engine) as (worker, _), client(worker, settings) as api:
        long, odd = [await api.post("/v1/generate", json={"input": text}) for text in ("long", "odd")]
        engine.away = "the server is away"
        away = await api.post("/v1/generate", json={"input": "x"})

    assert (long.status_code, long.json()["detail"]) == (422, "too long by 7 tokens")
    assert (odd.status_code, away.status_code) == (503, 503)
    assert away.json()["detail"] == "the server is away"
    assert "retry-after" in away.headers


async def test_a_client_that_goes_leaves_no_work_behind(settings: AgentSettings) -> None:
    engine = ScriptedEngine()
    engine.gate.clear()

    async with agent(settings, engine) as (worker, _), client(worker, settings) as api:
        late = await api.post("/v1/generate", json={"input": "late"}, headers={"X-Request-Timeout": "0.05"})
        engine.gate.set()
        after = await api.post("/v1/generate", json={"input": "after"})

    assert (late.status_code, after.status_code) == (504, 200)
    assert engine.answered == ["after"]
