"""The internal routes: ids in, ids out, by the adapter that is named and no other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from ratchet.adapters.folder import adapter_sha256, served_name
from ratchet.http.server.application import application
from services.agent.engines.engine import IdsRequest, TokenPiece
from services.agent.engines.scripted import EchoEngine
from services.agent.settings import AgentSettings
from services.agent.worker import AgentWorker
from tests.services.agent.test_agent_worker import ScriptedEngine, agent
from tests.serving import serving
from tests.waiting import settled, until

USER, END, ASSISTANT = 259, 257, 260
ASKED: dict[str, Any] = {
    "prompt_ids": [USER, 1, 2, END, ASSISTANT],
    "sampling": {"max_tokens": 9},
    "adapter_version": "v1.0.0",
}


def client(worker: AgentWorker, settings: AgentSettings) -> httpx.AsyncClient:
    app = application("agent", worker.routers(), settings, worker.trouble)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


def lines_of(answer: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.text.splitlines()]


def joined(answer: httpx.Response) -> tuple[list[int], list[float]]:
    """Ids and log-probabilities of all lines, each of which may have several."""
    lines = lines_of(answer)
    ids, logprobs = ([item for line in lines for item in line.get(name, ())] for name in ("ids", "logprobs"))
    return ids, logprobs


async def test_ids_are_answered_one_after_the_other_and_the_last_line_says_why(settings: AgentSettings) -> None:
    async with agent(settings, EchoEngine()) as (worker, _), client(worker, settings) as api:
        whole = await api.post("/internal/generate", json=ASKED)
        cut = await api.post("/internal/generate", json=ASKED | {"sampling": {"max_tokens": 2}})
        rest = await api.post("/internal/generate", json=ASKED | {"prompt_ids": [*ASKED["prompt_ids"], 1, 2]})
        served = (await api.get("/internal/model")).json()

    assert joined(whole) == ([1, 2, END], [0.0] * 3)
    assert joined(rest) == ([END], [0.0])
    assert [lines_of(answer)[-1]["finish_reason"] for answer in (whole, cut)] == ["stop", "length"]
    assert (served["agent_id"], served["engine"], served["context"], served["tokenizer"]) == (
        "small",
        "echo",
        8192,
        None,
    )


class Heard(EchoEngine):
    def __init__(self) -> None:
        super().__init__()
        self.stops: list[tuple[str, ...] | None] = []

    async def generate_ids(self, request: IdsRequest) -> AsyncGenerator[TokenPiece, None]:
        self.stops.append(request.sampling.stop)
        async for piece in super().generate_ids(request):
            yield piece


async def test_the_engine_is_told_what_strings_end_it(settings: AgentSettings) -> None:
    engine = Heard()
    async with agent(settings, engine) as (worker, _), client(worker, settings) as api:
        for stop in (["\n"], None):
            await api.post("/internal/generate", json=ASKED | {"sampling": {"max_tokens": 9, "stop": stop}})

    assert engine.stops == [("\n",), None]


async def test_an_adapter_is_loaded_for_it_and_must_be_the_one_that_is_named(
    settings: AgentSettings, write_adapter: Callable[..., Path]
) -> None:
    sha256 = adapter_sha256(write_adapter("v1.0.1"))
    engine = EchoEngine()
    async with agent(settings, engine) as (worker, _), client(worker, settings) as api:
        named = ASKED | {"adapter_version": "v1.0.1", "adapter_sha256": sha256}
        right = await api.post("/internal/generate", json=named)
        wrong = await api.post("/internal/generate", json=named | {"adapter_sha256": "0" * 64})
        missing = await api.post("/internal/generate", json=ASKED | {"adapter_version": "v1.0.7"})

    assert right.status_code == 200
    assert engine.adapters() == {served_name("small", "v1.0.1", sha256)}
    assert (wrong.status_code, missing.status_code) == (422, 422)
    assert "not the one that was registered" in wrong.json()["detail"]


async def test_an_engine_that_is_away_says_so_before_anything_is_sent(settings: AgentSettings) -> None:
    engine = ScriptedEngine()
    async with agent(settings, engine) as (worker, _), client(worker, settings) as api:
        engine.away = "its server is away"
        away = [await api.post("/internal/generate", json=ASKED), await api.get("/internal/model")]
        engine.away = None
        several = await api.post("/internal/generate", json=ASKED | {"sampling": {"n": 2}})

    assert [answer.status_code for answer in away] == [503, 503]
    assert several.status_code == 422 and "n must be 1" in several.json()["detail"]


class Endless(EchoEngine):
    """Says `says` tokens, and then nothing, until it is left."""

    def __init__(self, says: int) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.left = 0
        self.asked_times = 0
        self._says = says

    async def generate_ids(self, request: IdsRequest) -> AsyncGenerator[TokenPiece, None]:
        try:
            self.asked.set()
            self.asked_times += 1
            for token in range(self._says):
                yield TokenPiece(0, (token,), (0.0,))
            await asyncio.Event().wait()
        finally:
            self.left += 1


@pytest.mark.parametrize("says", [0, 1])
async def test_a_caller_that_leaves_ends_the_generation(settings: AgentSettings, says: int) -> None:
    engine = Endless(says)
    async with agent(settings, engine) as (worker, _):
        app = application("agent", worker.routers(), settings, worker.trouble)
        async with serving(app) as url, httpx.AsyncClient(base_url=url) as api:

            async def ask() -> None:
                async with api.stream("POST", "/internal/generate", json=ASKED) as answer:
                    async for _ in answer.aiter_lines():
                        pass

            asking = asyncio.create_task(ask())
            await engine.asked.wait()
            await settled()
            asking.cancel()
            await until(lambda: engine.left == 1)


async def test_a_call_that_has_a_name_goes_on_though_its_caller_left_until_it_is_called_off(
    settings: AgentSettings,
) -> None:
    engine = Endless(2)
    named = ASKED | {"call": "of a rollout"}
    async with agent(settings, engine) as (worker, _):
        app = application("agent", worker.routers(), settings, worker.trouble)
        async with serving(app) as url, httpx.AsyncClient(base_url=url) as api:

            async def first() -> str:
                async with api.stream("POST", "/internal/generate", json=named) as answer:
                    return await anext(answer.aiter_lines())

            before = await first()
            again = await first()
            was_left = engine.left
            off = await api.delete("/internal/generate/of%20a%20rollout")
            await until(lambda: engine.left == 1)

    assert json.loads(before)["ids"][0] == json.loads(again)["ids"][0] == 0
    assert (was_left, engine.asked_times, off.status_code) == (0, 1, 204)
