"""The engine behind an OpenAI-compatible URL, against a server that is scripted."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from ratchet.service.errors import AdapterError, EngineError, PromptRefused, SettingsError
from schemas.messages.response import Usage
from schemas.messages.task import AnswerFormat, Tool, ToolFunction
from schemas.messages.work import Sampling
from services.agent.engines.engine import Generation, GenerationRequest
from services.agent.engines.openai_engine import OpenAiEngine
from services.agent.settings import AgentSettings

ASK = GenerationRequest("2+2?", Sampling(n=2, temperature=0.7, max_tokens=9, stop=("\n",)))
ANSWER = {
    "choices": [{"message": {"content": "4"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 1},
}


class Server:
    """It answers each chat completion with `reply`, or with `status` where that is no success."""

    def __init__(self) -> None:
        self.reply: dict[str, Any] = ANSWER
        self.status = 200
        self.asked: list[dict[str, Any]] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            self.asked.append(json.loads(request.content))
        elif self.status == 200:
            return httpx.Response(200, json={"data": []})
        return httpx.Response(self.status, json=self.reply)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def engine(server: Server) -> AsyncIterator[OpenAiEngine]:
    http = httpx.AsyncClient(transport=httpx.MockTransport(server.answer), base_url="http://big/v1")
    engine = OpenAiEngine(http, model="big-1")
    await engine.start()
    yield engine
    await engine.stop()


async def test_each_answer_of_a_group_is_a_call_and_says_what_it_cost(server: Server, engine: OpenAiEngine) -> None:
    (generation,) = await engine.generate([ASK])

    assert isinstance(generation, Generation)
    assert [sample.text for sample in generation.samples] == ["4", "4"]
    assert generation.samples[0].usage == Usage(calls=1, prompt_tokens=5, sampled_tokens=1)
    assert generation.samples[0].completion_ids is None
    assert server.asked[0] == {
        "model": "big-1",
        "messages": [{"role": "user", "content": "2+2?"}],
        "max_tokens": 9,
        "temperature": 0.7,
        "stop": ["\n"],
    }


async def test_a_form_is_asked_of_the_server(server: Server, engine: OpenAiEngine) -> None:
    schema = {"type": "object"}
    form = AnswerFormat(type="json_schema", json_schema=schema)
    await engine.generate([GenerationRequest("x", Sampling(), format=form)])
    assert server.asked[0]["response_format"]["json_schema"]["schema"] == schema


@pytest.mark.parametrize("usage", [None, "much", {"prompt_tokens": -1, "completion_tokens": "?"}])
async def test_a_server_that_does_not_say_what_it_cost_is_taken_all_the_same(
    server: Server, engine: OpenAiEngine, usage: Any
) -> None:
    server.reply = {"choices": [{"message": {"content": "4"}, "finish_reason": "length"}], "usage": usage}
    (generation,) = await engine.generate([ASK])
    assert isinstance(generation, Generation)
    assert (generation.samples[0].usage, generation.samples[0].finish_reason) == (None, "length")


@pytest.mark.parametrize(
    ("status", "reply", "error"),
    [
        (400, {"error": {"message": "against our policy"}}, PromptRefused),
        (200, {"choices": [{"message": {"content": None, "refusal": "no"}}]}, PromptRefused),
        (401, {"error": {"message": "no such key"}}, EngineError),
    ],
)
async def test_a_refusal_ends_the_task_and_any_other_failure_may_pass(
    server: Server, engine: OpenAiEngine, status: int, reply: dict[str, Any], error: type[EngineError]
) -> None:
    server.status, server.reply = status, reply
    (failed,) = await engine.generate([ASK])
    assert type(failed) is error
    assert bool(engine.trouble()) == (error is EngineError)


async def test_it_takes_neither_adapters_nor_tools(engine: OpenAiEngine) -> None:
    tool = Tool(function=ToolFunction(name="f"))
    adapted, tooled = await engine.generate(
        [GenerationRequest("x", Sampling(), adapter="a"), GenerationRequest("x", Sampling(), tools=(tool,))]
    )
    assert isinstance(adapted, AdapterError) and isinstance(tooled, PromptRefused)
    assert engine.adapters() == frozenset()


@pytest.mark.parametrize(("url", "name"), [("", "big-1"), ("big:8000", "big-1"), ("https://big/v1", "")])
def test_without_a_url_and_a_name_it_says_what_to_set(url: str, name: str) -> None:
    settings = AgentSettings(big_model=url, big_model_name=name)
    with pytest.raises(SettingsError, match="RATCHET_BIG_MODEL"):
        OpenAiEngine.from_settings(settings)
