"""The stream of a vLLM server as tokens, and what it is told where the server fails."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from ratchet.openai.transport import ContextTooLong, ModelServerError, ServerUnavailable
from ratchet.rollouts.vllm import VllmTokens
from schemas.messages.work import Sampling

SAMPLING = Sampling(temperature=0.7, max_tokens=9)


def chunk(ids: Any, logprobs: Any, finish: str | None = None) -> str:
    choice = {"index": 0, "text": "a", "token_ids": ids, "logprobs": {"token_logprobs": logprobs}}
    return f"data: {json.dumps({'choices': [choice | {'finish_reason': finish}]})}\n\n"


async def sampled(body: str, status: int = 200, asked: list[Any] | None = None) -> list[tuple[int, float]]:
    def answer(request: httpx.Request) -> httpx.Response:
        if asked is not None:
            asked.append(json.loads(request.content) | request.extensions["timeout"])
        return httpx.Response(status, text=body)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://vllm") as http:
        engine = VllmTokens(http, model="small@v1.0.1", context=100, sampling=SAMPLING)
        return [tuple(token) async for token in engine.sample([5, 6], 20)]


async def test_ids_go_in_and_ids_come_out_with_the_sampling_of_the_work() -> None:
    asked: list[Any] = []
    body = chunk([7], [-0.5]) + ": ping\n\n" + chunk([8, 2], [-1.0, -0.25], "stop") + "data: [DONE]\n\n"

    assert await sampled(body, asked=asked) == [(7, -0.5), (8, -1.0), (2, -0.25)]

    (request,) = asked
    assert (request["prompt"], request["model"], request["max_tokens"]) == ([5, 6], "small@v1.0.1", 9)
    assert (request["temperature"], request["stream"], request["return_token_ids"]) == (0.7, True, True)
    assert (request["connect"], request["read"]) == (5.0, 600.0), "the first token of a busy server may take minutes"


@pytest.mark.parametrize(
    ("body", "status", "kind", "said"),
    [
        ('{"error": {"message": "over the context length"}}', 400, ContextTooLong, "over the context length"),
        ("out of memory", 500, ServerUnavailable, "HTTP 500"),
        (chunk(None, [-0.5]), 200, ServerUnavailable, "is it vLLM"),
        (chunk([7, 8], [-0.5]), 200, ServerUnavailable, "is it vLLM"),
        (chunk([7], [None]), 200, ServerUnavailable, "no log-probability for token 7"),
        ('data: {"error": "x"}\n\n', 200, ServerUnavailable, "no chunk of a completion"),
    ],
)
async def test_what_goes_wrong_has_a_sentence(body: str, status: int, kind: type[ModelServerError], said: str) -> None:
    with pytest.raises(kind, match=said):
        await sampled(body, status)
