"""Servers that are not there, or answer what no vLLM answers: cases a recording can't hold."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from ratchet.models.tokenization import load_tokenizer
from ratchet.openai.client import VllmClient
from ratchet.openai.transport import ServerUnavailable
from ratchet.service.errors import AdapterError, EngineError
from schemas.messages.work import Sampling
from services.agent.engines.engine import GenerationRequest
from services.agent.engines.vllm_engine import VllmEngine, vllm_client
from services.agent.settings import AgentSettings

HELLO = GenerationRequest("hello", Sampling(n=1, temperature=0.0, max_tokens=8))


async def test_no_connection_is_an_error_that_passes() -> None:
    nobody = httpx.AsyncClient(base_url="http://127.0.0.1:9")
    client = VllmClient(nobody, setting="RATCHET_AGENT_VLLM_URL", timeout_s=1, api_path="/v1")
    with pytest.raises(ServerUnavailable, match=r"/health can't be reached .* RATCHET_AGENT_VLLM_URL"):
        await client.check_health()
    await client.stop()


@pytest.mark.parametrize(
    "answer",
    [
        {"choices": []},
        {"choices": [{"index": 0, "text": "a", "finish_reason": "abort"}]},
        {"choices": [{"index": 0, "text": "a", "finish_reason": "stop", "token_ids": [1, 2]}]},
        {"choices": "none"},
        "not an object",
    ],
    ids=["too few", "aborted", "no logprobs", "no list", "no object"],
)
async def test_an_answer_that_makes_no_sense_is_an_error_that_passes(tiny_model: Path, answer: Any) -> None:
    def confused(request: httpx.Request) -> httpx.Response:
        models = {"data": [{"id": "base"}]}
        return httpx.Response(200, json=models if request.url.path == "/v1/models" else answer)

    client = httpx.AsyncClient(transport=httpx.MockTransport(confused), base_url="http://vllm")
    engine = VllmEngine(client, model="base", tokenizer=load_tokenizer(tiny_model), health_period_s=60)
    await engine.start()
    (failed,) = await engine.generate([HELLO])
    assert type(failed) is EngineError
    await engine.stop()


BROKEN = {"token_logprobs": [float("nan")]}


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (
            200,
            {"choices": [{"index": 0, "text": "a", "finish_reason": "stop", "token_ids": [1], "logprobs": BROKEN}]},
            AdapterError,
        ),
        (500, {"error": {"message": "Out of range float values are not JSON compliant"}}, EngineError),
    ],
    ids=["not finite", "failed"],
)
async def test_an_adapter_that_breaks_the_server_s_answers_does_not_make_the_server_look_away(
    tiny_model: Path, status: int, body: Any, error: type[EngineError]
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "base"}, {"id": "red", "parent": "base"}]})
        if request.url.path == "/v1/completions":
            return httpx.Response(status, content=json.dumps(body))
        return httpx.Response(200)

    client = httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://vllm")
    engine = VllmEngine(client, model="base", tokenizer=load_tokenizer(tiny_model), health_period_s=60)
    await engine.start()

    (failed,) = await engine.generate([GenerationRequest("hello", HELLO.sampling, "red")])

    assert type(failed) is error
    assert "red" in str(failed)
    assert engine.trouble() is None
    await engine.stop()


async def test_the_api_key_is_sent_and_not_shown() -> None:
    settings = AgentSettings.read(agent_engine="vllm", agent_vllm_api_key="s3cret")
    client = vllm_client(settings)
    assert client.headers["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in repr(settings)
    await client.aclose()


async def test_a_look_that_began_before_an_unload_does_not_bring_the_adapter_back() -> None:
    served, asked, may_answer = {"base": None, "v1.0.1": "base"}, asyncio.Event(), asyncio.Event()

    async def server(request: httpx.Request) -> httpx.Response:
        """Says what it served when it was asked, once each time it may."""
        if request.url.path.endswith("/models"):
            cards = [{"id": one, "parent": of, "max_model_len": 64} for one, of in served.items()]
            asked.set()
            await may_answer.wait()
            may_answer.clear()
            return httpx.Response(200, json={"data": cards})
        if "unload" in request.url.path:
            served.pop(json.loads(request.content)["lora_name"])
        return httpx.Response(200)

    client = httpx.AsyncClient(transport=httpx.MockTransport(server), base_url="http://vllm")
    engine = VllmEngine(client, model="base", health_period_s=0.01)
    may_answer.set()
    await engine.start()
    assert engine.adapters() == {"v1.0.1"}
    asked.clear()

    await asked.wait()
    await engine.unload_adapter("v1.0.1")
    asked.clear()
    may_answer.set()
    await asked.wait()  # the next look: that one is over

    assert engine.adapters() == frozenset()
    await engine.stop()
