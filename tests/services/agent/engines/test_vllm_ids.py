"""A vLLM server asked with token ids for a conversation, by the agent's own engine."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from ratchet.grammars.grammar import grammar_for
from ratchet.service.errors import AdapterError, EngineError, PromptRefused, PromptTooLong
from schemas.messages.task import AnswerFormat
from schemas.messages.work import Sampling
from services.agent.engines.engine import IdsRequest, StreamsIds, TokenPiece
from services.agent.engines.vllm_engine import VllmEngine, completion_request

MODELS = {"data": [{"id": "base", "max_model_len": 12}, {"id": "red", "parent": "base", "max_model_len": 12}]}


def chunk(token: int, logprob: float) -> str:
    choice = {"index": 0, "text": "a", "token_ids": [token], "logprobs": {"token_logprobs": [logprob]}}
    return f"data: {json.dumps({'choices': [choice | {'finish_reason': None}]})}\n\n"


@asynccontextmanager
async def engine(body: str, status: int = 200) -> AsyncIterator[tuple[VllmEngine, list[Any]]]:
    asked: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path != "/v1/completions":
            return httpx.Response(200, json=MODELS)
        asked.append(json.loads(request.content))
        return httpx.Response(status, text=body)

    http = httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://vllm")
    made = VllmEngine(http, model="base", health_period_s=60)
    await made.start()
    yield made, asked
    await made.stop()


async def pieces(made: VllmEngine, request: IdsRequest) -> list[TokenPiece]:
    return [piece async for piece in made.generate_ids(request)]


async def test_tokens_come_as_the_server_tells_them_by_the_adapter_that_is_named() -> None:
    async with engine(chunk(7, -0.5) + chunk(2, -1.0) + "data: [DONE]\n\n") as (made, asked):
        assert isinstance(made, StreamsIds) and made.context == 12
        told = await pieces(made, IdsRequest((5, 6), Sampling(temperature=0.7, max_tokens=99, stop=("\n",)), "red"))

    assert [(piece.ids, piece.logprobs, piece.finish_reason) for piece in told] == [
        ((7,), (-0.5,), None),
        ((2,), (-1.0,), None),
        ((), (), "stop"),
    ]
    (request,) = asked
    assert (request["prompt"], request["model"], request["max_tokens"]) == ([5, 6], "red", 10)
    assert (request["temperature"], request["return_token_ids"], request["stream"]) == (0.7, True, True)
    assert (request["stop"], request["skip_special_tokens"]) == (["\n"], False)


async def test_an_answer_is_held_to_a_grammar_by_the_server() -> None:
    grammar = grammar_for(AnswerFormat(type="json_object"))
    async with engine(chunk(7, -0.5) + "data: [DONE]\n\n") as (made, asked):
        await pieces(made, IdsRequest((5, 6), Sampling(grammar=grammar), "red"))
        with pytest.raises(PromptRefused, match="can't go on"):
            await pieces(made, IdsRequest((5, 6), Sampling(grammar=grammar), "red", begun=1))

    (request,) = asked
    assert request["structured_outputs"] == {"grammar": grammar.text}
    whole = completion_request("red", (5, 6), Sampling(grammar=grammar), 10)
    assert whole["structured_outputs"] == request["structured_outputs"]
    assert "structured_outputs" not in completion_request("red", (5, 6), Sampling(), 10)


async def test_what_it_can_not_answer_is_told_apart() -> None:
    async with engine(chunk(7, float("nan"))) as (made, asked):
        with pytest.raises(AdapterError, match="not finite"):
            await pieces(made, IdsRequest((5,), Sampling(), "red"))
        with pytest.raises(AdapterError, match="no adapter 'blue'"):
            await pieces(made, IdsRequest((5,), Sampling(), "blue"))
        with pytest.raises(PromptTooLong):
            await pieces(made, IdsRequest((5,) * 12, Sampling()))
    assert len(asked) == 1
    async with engine("out of memory", 500) as (made, _):
        with pytest.raises(EngineError, match="HTTP 500"):
            await pieces(made, IdsRequest((5,), Sampling()))
