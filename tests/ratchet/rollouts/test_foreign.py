"""Roles that models of other providers play: fake servers of both dialects, with their errors, behind the recorder."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ratchet.rollouts.application import Recorder
from ratchet.rollouts.foreign import ForeignRole
from ratchet.rollouts.kept_steps import KeptSteps
from ratchet.rollouts.profiles import read_profiles
from ratchet.rollouts.providers import ForeignClient, ForeignModel, Provider
from ratchet.rollouts.recording import Ran, record
from ratchet.rollouts.rollout import Budget, RecordedRollout
from ratchet.service.errors import SettingsError
from ratchet.service.prices import AgentPrices
from schemas.messages.response import ForeignPart, Sample
from tests.ratchet.conversation.speakers import template
from tests.ratchet.rollouts.scripted_engine import ScriptedEngine
from tests.serving import serving

KEY = "sk-secret-of-the-provider"
PROVIDERS: tuple[Provider, ...] = ("openai", "anthropic")
PRICES = AgentPrices(prompt=2, sampled=10, samples=1, max_tokens=100)  # type: ignore[arg-type]
ASKED = {"model": "reviewer", "messages": [{"role": "system", "content": "Short."}, {"role": "user", "content": "Hi"}]}
WHOLE: Mapping[Provider, Any] = {
    "openai": {
        "choices": [{"message": {"role": "assistant", "content": "Fine."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
    },
    "anthropic": {
        "content": [{"type": "text", "text": "Fine."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 7, "output_tokens": 3},
    },
}


class FakeProvider:
    """Answers with what it is given, one after the other, and then as always."""

    def __init__(self, *replies: Response) -> None:
        self.replies = list(replies)
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []

    def application(self) -> Starlette:
        paths: Mapping[Provider, str] = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
        return Starlette(routes=[Route(paths[one], self._answer_as(one), methods=["POST"]) for one in PROVIDERS])

    def _answer_as(self, provider: Provider) -> Any:
        async def answer(request: Request) -> Response:
            self.bodies.append(await request.json())
            self.headers.append(dict(request.headers))
            return self.replies.pop(0) if self.replies else JSONResponse(WHOLE[provider])

        return answer


def cut() -> Response:
    async def parts() -> AsyncIterator[bytes]:
        yield b'{"choices": [{"mess'
        raise ConnectionError("the provider's connection is cut")

    return StreamingResponse(parts(), media_type="application/json")


def refused(status: int, says: str = "", **headers: str) -> Response:
    return JSONResponse({"error": {"type": "x", "message": says}}, status, headers)


@asynccontextmanager
async def played(
    provider: Provider, fake: FakeProvider, folder: Path | None = None, budget: Budget | None = None
) -> AsyncIterator[tuple[httpx.AsyncClient, RecordedRollout]]:
    """A client of the recorder, and the rollout, in which that provider's model plays the reviewer."""
    async with serving(fake.application()) as url:
        client = ForeignClient(ForeignModel(provider, "big-1", f"{url}/v1", KEY))
        steps = KeptSteps(folder / "0.steps.jsonl", "1 t/0", held_s=0.02) if folder else None
        budget = budget or Budget()
        engine = ScriptedEngine(lambda _: (0,))
        rollout = RecordedRollout(template("qwen2_5"), engine, model="m", steps=steps, budget=budget)
        rollout.foreign = {"reviewer": ForeignRole("reviewer", client, budget, steps, PRICES)}
        recorder = Recorder()
        headers = {"Authorization": f"Bearer {recorder.begin(rollout)}"}
        transport = httpx.ASGITransport(recorder.application())
        async with httpx.AsyncClient(transport=transport, base_url="http://r/v1/", headers=headers) as http:
            yield http, rollout
        await client.stop()
        if steps is not None:
            steps.close()


async def sample_of(rollout: RecordedRollout) -> Sample:
    async def end_at_once(_: RecordedRollout) -> Ran:
        return Ran("Fine.", "finished")

    return (await record(rollout, "it", end_at_once))[0]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_role_of_another_provider_is_text_without_ids_with_its_cost(provider: Provider) -> None:
    fake = FakeProvider()
    async with played(provider, fake) as (http, rollout):
        first = (await http.post("chat/completions", json=ASKED)).json()
        again = [*ASKED["messages"], first["choices"][0]["message"], {"role": "user", "content": "Sure?"}]
        await http.post("chat/completions", json={"model": "reviewer", "messages": again})
        names = [one["id"] for one in (await http.get("models")).json()["data"]]
        sample = await sample_of(rollout)

    assert first["choices"][0]["message"]["content"] == "Fine." and first["usage"]["completion_tokens"] == 3
    assert names == ["m", "reviewer"]
    assert sample.segments is None and sample.completion_ids is None and rollout.conversation.calls == []
    (part,) = sample.foreign or ()
    assert (part.role, part.model, part.calls) == ("reviewer", f"{provider}:big-1", 2)
    assert (part.prompt_tokens, part.sampled_tokens, part.cost_micros) == (14, 6, 14 * 2 + 6 * 10)
    assert [turn.content for turn in part.turns] == ["Short.", "Hi", "Fine.", "Sure?", "Fine."]
    assert KEY in str(fake.headers) and KEY not in sample.model_dump_json()
    if provider == "anthropic":
        assert fake.bodies[1]["system"] == "Short."
        assert [one["role"] for one in fake.bodies[1]["messages"]] == ["user", "assistant", "user"]


@pytest.mark.parametrize("path", ["chat/completions", "messages", "responses"])
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_client_of_any_dialect_is_answered_also_in_a_stream(provider: Provider, path: str) -> None:
    body: dict[str, Any] = {"model": "reviewer", "stream": True}
    asked = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
    body |= {"input": "Hi"} if path == "responses" else asked
    async with played(provider, fake := FakeProvider(cut())) as (http, _):
        reply = await http.post(path, json=body)

    assert reply.status_code == 200 and "Fine." in reply.text
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert len(fake.bodies) == 2 and "stream" not in fake.bodies[0]  # the first was cut, and nothing of it is served


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CALLS: Mapping[Provider, Any] = {
    "openai": {
        "choices": [
            {"message": {"content": None, "tool_calls": [{"function": {"name": "look", "arguments": '{"at": 1}'}}]}}
        ]
    },
    "anthropic": {"content": [{"type": "tool_use", "id": "x", "name": "look", "input": {"at": 1}}]},
}


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_it_may_call_tools(provider: Provider) -> None:
    fake = FakeProvider(JSONResponse(CALLS[provider]))
    async with played(provider, fake) as (http, _):
        first = (await http.post("chat/completions", json=ASKED | {"tools": [TOOL]})).json()
        message = first["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "a coin"}
        told = {"model": "reviewer", "messages": [*ASKED["messages"], message, result], "tools": [TOOL]}
        second = (await http.post("chat/completions", json=told)).json()

    assert message["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at": 1}'}
    assert second["choices"][0]["message"]["content"] == "Fine."
    assert "a coin" in json.dumps(fake.bodies[1]["messages"][-1])


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("first", [lambda: refused(429, "slow down", **{"retry-after": "0"}), cut])
async def test_what_may_pass_is_asked_again(provider: Provider, first: Any) -> None:
    fake = FakeProvider(first())
    async with played(provider, fake) as (http, rollout):
        reply = await http.post("chat/completions", json=ASKED)
        (part,) = (await sample_of(rollout)).foreign or ()

    assert reply.status_code == 200
    assert (len(fake.bodies), part.calls) == (2, 1)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_wrong_key_is_said_without_the_key(provider: Provider) -> None:
    fake = FakeProvider(refused(401, f"Incorrect API key provided: {KEY}"))
    async with played(provider, fake) as (http, rollout):
        reply = await http.post("chat/completions", json=ASKED)
        trouble = rollout.engine_trouble

    assert reply.status_code == 503 and "refuses our key" in reply.text
    assert KEY not in reply.text and KEY not in str(trouble)


REFUSALS: Mapping[Provider, Any] = {
    "openai": {"choices": [{"message": {"content": None, "refusal": "I can't."}, "finish_reason": "content_filter"}]},
    "anthropic": {"content": [{"type": "text", "text": "I can't."}], "stop_reason": "refusal"},
}


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_refusal_is_an_answer_and_a_bad_request_an_error(provider: Provider) -> None:
    fake = FakeProvider(JSONResponse(REFUSALS[provider]), refused(400, "no such field"))
    async with played(provider, fake) as (http, _):
        answered = (await http.post("chat/completions", json=ASKED)).json()
        bad = await http.post("chat/completions", json=ASKED)

    assert answered["choices"][0]["message"]["content"] == "I can't."
    assert bad.status_code == 400 and "no such field" in bad.text


async def test_a_prompt_that_is_too_long_for_the_provider_is_refused_as_that() -> None:
    fake = FakeProvider(refused(400, "This model's maximum context length is 8 tokens"))
    async with played("openai", fake) as (http, _):
        reply = await http.post("chat/completions", json=ASKED)

    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_program_that_runs_again_is_answered_from_its_steps(provider: Provider, tmp_path: Path) -> None:
    fake, parts = FakeProvider(), list[ForeignPart]()
    for _ in range(2):
        async with played(provider, fake, tmp_path) as (http, rollout):
            await http.post("chat/completions", json=ASKED)
            parts += (await sample_of(rollout)).foreign or ()

    assert len(fake.bodies) == 1 and parts[0] == parts[1]
    assert KEY not in (tmp_path / "0.steps.jsonl").read_text()


async def test_its_tokens_and_calls_are_within_the_rollouts_limits() -> None:
    budget = Budget(calls=9, tokens=5)
    async with played("openai", fake := FakeProvider(), budget=budget) as (http, _):
        statuses = [(await http.post("chat/completions", json=ASKED)).status_code for _ in range(3)]

    assert statuses == [200, 200, 503] and budget.says == "the model sampled 5 tokens for it, as many as it may have"
    assert [body["max_tokens"] for body in fake.bodies] == [5, 2]


FILE = """
[profiles.mixed.roles.reviewer]
provider = "anthropic"
model = "big-1"
key = "THE_KEY"
[profiles.mixed.roles.writer]
provider = "local"
[profiles.mixed.limits]
calls = 8
"""


def test_a_profile_names_keys_by_their_variable(tmp_path: Path) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text(FILE)

    (mixed,) = read_profiles(file, {"THE_KEY": KEY}).values()

    url = "https://api.anthropic.com/v1"
    assert mixed.foreign == {"reviewer": ForeignModel("anthropic", "big-1", url, KEY)}
    assert (mixed.limits.calls, mixed.tenants, mixed.daily.cost) == (8, ("default",), None)
    assert read_profiles(None, {}) == {}


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ('"THE_KEY"', '"OTHER"', "profiles.mixed.roles.reviewer: the variable OTHER, which has its key, is not set"),
        ('model = "big-1"', "", "name a model"),
        ("anthropic", "other", "roles.reviewer.provider: Input should be"),
        ("calls", "rounds", "limits.rounds: Extra inputs"),
    ],
)
def test_a_profile_that_can_not_be_used_is_named(before: str, after: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text(FILE.replace(before, after))

    with pytest.raises(SettingsError, match=says):
        read_profiles(file, {"THE_KEY": KEY})
