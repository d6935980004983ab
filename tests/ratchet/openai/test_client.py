from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest

from ratchet.openai.client import OpenAiClient, http_client
from ratchet.openai.transport import CallTimeout, ContextTooLong, ModelMissing, RequestRefused, ServerUnavailable
from tests.ratchet.openai.model_server import MODEL, Fault, running
from tests.waiting import until

BODY: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
AT_ONCE = {"retry-after": "0"}


def hello(body: dict[str, Any]) -> str:
    return "hello"


@asynccontextmanager
async def connected(url: str, *, api_key: str | None = None, **given: Any) -> AsyncIterator[OpenAiClient]:
    options: dict[str, Any] = {"setting": "THE_URL", "timeout_s": 5.0, "retries": 2, "concurrency": 4}
    client = OpenAiClient(http_client(url, api_key), **(options | given))
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def test_the_double_is_an_openai_server_to_openais_own_client() -> None:
    async with running(hello) as server, openai.AsyncOpenAI(base_url=server.url, api_key="k") as client:
        completion = await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}])
        models = [model.id async for model in client.models.list()]
    assert completion.choices[0].message.content == "hello"
    assert completion.choices[0].finish_reason == "stop"
    assert models == [MODEL]


async def test_the_text_of_the_reply_comes_back_and_the_key_is_sent() -> None:
    async with running(hello) as server, connected(server.url, api_key="secret") as client:
        assert await client.chat(BODY) == "hello"
        assert server.requests == [BODY]
        assert server.keys == ["Bearer secret"]
        assert client.trouble() is None


async def test_what_openais_own_client_sends_is_what_ours_sends() -> None:
    async with running(hello) as server, openai.AsyncOpenAI(base_url=server.url, api_key="k") as other:
        async with connected(server.url, api_key="k") as client:
            await client.chat(BODY)
        await other.chat.completions.create(**BODY)
    assert server.requests[0] == server.requests[1]
    assert server.keys[0] == server.keys[1]


@pytest.mark.parametrize(
    "faults",
    [
        [Fault(429, headers=AT_ONCE)],
        [Fault(500, headers=AT_ONCE), Fault(503, headers=AT_ONCE)],
        [Fault(drop=True)],
    ],
)
async def test_what_may_pass_is_tried_again(faults: list[Fault]) -> None:
    async with running(hello) as server, connected(server.url) as client:
        server.faults.extend(faults)
        assert await client.chat(BODY) == "hello"
        assert len(server.requests) == len(faults) + 1


async def test_after_the_last_retry_the_server_counts_as_unavailable_until_a_call_succeeds() -> None:
    async with running(hello) as server, connected(server.url, retries=1) as client:
        server.faults.extend([Fault(503, "overloaded", AT_ONCE)] * 2)
        with pytest.raises(ServerUnavailable, match="failed 2 times; the last: HTTP 503: overloaded"):
            await client.chat(BODY)
        assert "HTTP 503" in (client.trouble() or "")
        await client.chat(BODY)
        assert client.trouble() is None


@pytest.mark.parametrize(
    ("fault", "error", "sentence"),
    [
        (Fault(400, "context length exceeded"), ContextTooLong, "refuses the request .HTTP 400: context length"),
        (Fault(401), ServerUnavailable, "mend the API key"),
        (Fault(422, '{"error": {"message": "no such tool"}}'), RequestRefused, "HTTP 422: no such tool"),
        (Fault(404), ModelMissing, "mend THE_URL or the model"),
        (Fault(302), ServerUnavailable, "mend THE_URL"),
        (Fault(200, "<html>"), ServerUnavailable, "no chat completion"),
        (Fault(200, "[]"), ServerUnavailable, "no chat completion"),
        (Fault(200, '{"choices": []}'), ServerUnavailable, "no chat completion"),
        (Fault(200, '{"choices": [{"message": {"content": null}}]}'), RequestRefused, "gave no text"),
        (Fault(200, '{"choices": [{"message": {"refusal": "never"}}]}'), RequestRefused, "gave no text: never"),
        (Fault(200, '{"choices": [{"message": {"content": 3}}]}'), RequestRefused, "gave no text"),
        (Fault(200, "[" * 100_000), ServerUnavailable, "no chat completion"),
        (Fault(wait_s=0.8), CallTimeout, "no reply within 0.3 s"),
    ],
)
async def test_what_no_retry_mends_is_raised_at_once(fault: Fault, error: type[Exception], sentence: str) -> None:
    timeout_s = 0.3 if error is CallTimeout else 30.0
    async with running(hello) as server, connected(server.url, timeout_s=timeout_s) as client:
        server.faults.append(fault)
        with pytest.raises(error, match=sentence):
            await client.chat(BODY)
        assert len(server.requests) == 1


async def test_no_more_calls_are_in_flight_than_allowed() -> None:
    async with running(hello) as server, connected(server.url, concurrency=3) as client:
        reply = json.dumps({"choices": [{"message": {"content": "late"}}]})
        server.faults.extend([Fault(body=reply, wait_s=0.02)] * 12)
        assert await asyncio.gather(*(client.chat(BODY) for _ in range(12))) == ["late"] * 12
        assert server.most_in_flight == 3


async def test_a_server_that_is_away_is_trouble_and_the_client_notices_its_return() -> None:
    async with running(hello, Fault(503, "loading the model")) as server:
        async with connected(server.url, probe_s=0.05) as client:
            assert "loading the model" in (client.trouble() or "")
            await until(lambda: not client.trouble())
        assert server.requests == []


async def test_where_nothing_listens_the_call_fails_and_says_where() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    async with connected(url, retries=0) as client:
        assert url in (client.trouble() or "")
        with pytest.raises(ServerUnavailable, match="no connection"):
            await client.chat(BODY)
