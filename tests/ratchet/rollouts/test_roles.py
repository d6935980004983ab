"""A program with roles: who answers which call, and what is recorded of each role."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import pytest

from ratchet.rollouts.agent import Model
from ratchet.rollouts.application import Recorder
from ratchet.rollouts.recording import Ran, record, rollout_of
from ratchet.rollouts.rollout import Budget, RecordedRollout
from schemas.api.generate import ServedModel
from schemas.messages.response import Sample
from schemas.messages.work import Arm, RoleVersion, Sampling
from tests.making_work import work
from tests.ratchet.conversation.speakers import SPECIAL, codec, template

END = SPECIAL.index("<|im_end|>")
ROLES = {
    "writer": RoleVersion(agent_id="small", adapter_version="v1.0.3", adapter_sha256="a" * 64),
    "mender": RoleVersion(agent_id="critic", adapter_version="v1.0.1", adapter_sha256="b" * 64),
}
ARM = Arm(adapter_version="v1.0.3", adapter_sha256="a" * 64, sequence=0, roles=ROLES)


class Fleet(httpx.AsyncBaseTransport):
    """Agents that say their own host, and keep which adapter they were asked with."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body: Any = httpx.Response(200, content=await request.aread()).json()
        host = request.url.host
        self.asked.append((host, body["adapter_version"], body["adapter_sha256"]))
        ids = [*codec().encode(host), END]
        told = {"ids": ids, "logprobs": [-0.5 if host == "small" else -0.25] * len(ids), "finish_reason": "stop"}
        return httpx.Response(200, json=told)


def model(agent: str, **partners: Model) -> Model:
    served = ServedModel(agent_id=agent, engine="echo", tokenizer=None, revision=None, context=999)
    return Model(served, template("qwen2_5"), (f"http://{agent}",), partners)


@asynccontextmanager
async def rollout(arm: Arm = ARM, calls: int = 9) -> AsyncIterator[tuple[Fleet, RecordedRollout, str, Any]]:
    fleet = Fleet()
    async with httpx.AsyncClient(transport=fleet) as http:
        of = work("t", Sampling(), arm=arm)
        begun = rollout_of(of, 0, model("small", mender=model("critic")), http, Budget(calls=calls))
        recorder = Recorder()
        clients = httpx.AsyncClient(transport=httpx.ASGITransport(recorder.application()))
        yield fleet, begun, recorder.begin(begun), clients


def client_of(key: str, http: httpx.AsyncClient) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key=key, base_url="http://recorder/v1", max_retries=0, http_client=http)


async def ask(key: str, http: httpx.AsyncClient, role: str, *said: str) -> Any:
    turns: list[Any] = [
        {"role": "assistant" if number % 2 else "user", "content": text} for number, text in enumerate(said)
    ]
    return await client_of(key, http).chat.completions.create(model=role, messages=turns)


async def sample_of(begun: RecordedRollout) -> Sample:
    async def start(_: RecordedRollout) -> Ran:
        return Ran("done", "finished")

    sample, _ = await record(begun, "pair", start)
    return sample


async def test_each_call_is_answered_by_the_adapter_of_the_role_that_it_names() -> None:
    async with rollout() as (fleet, _, key, http):
        answers = [await ask(key, http, role, f"to {role}") for role in ("writer", "mender", "gpt-5", "writer")]

    small, critic = ("small", "v1.0.3", "a" * 64), ("critic", "v1.0.1", "b" * 64)
    assert fleet.asked == [small, critic, small, small]
    assert [(one.model, one.choices[0].message.content) for one in answers[:2]] == [
        ("small", "small"),
        ("critic", "critic"),
    ]


async def test_each_segment_has_one_role_with_its_version_and_the_usage_has_the_part_of_each() -> None:
    async with rollout() as (_, begun, key, http):
        await ask(key, http, "writer", "write")
        await ask(key, http, "mender", "mend", "small", "and again")  # what the writer said is given to the mender
        await ask(key, http, "writer", "write", "small", "once more")
        sample = await sample_of(begun)

    segments = sample.segments or ()
    assert [(one.role, one.adapter_version, len(one.spans)) for one in segments] == [
        ("writer", "v1.0.3", 2),
        ("mender", "v1.0.1", 1),
    ]
    assert [set(one.logprobs) for one in segments] == [{-0.5}, {-0.25}]
    assert sample.usage is not None and (sample.usage.calls, sample.usage.breaks) == (3, {})
    parts = sample.usage.roles
    assert {role: (one.adapter_version, one.calls) for role, one in parts.items()} == {
        "writer": ("v1.0.3", 2),
        "mender": ("v1.0.1", 1),
    }
    assert sum(one.sampled_tokens for one in parts.values()) == sample.usage.sampled_tokens == sample.sampled_tokens
    assert sum(one.prompt_tokens for one in parts.values()) == sample.usage.prompt_tokens


async def test_segments_of_all_roles_stand_in_the_order_in_which_they_began() -> None:
    async with rollout() as (_, begun, key, http):
        for role, said in (("mender", "first"), ("writer", "second"), ("mender", "third")):
            await ask(key, http, role, said)
        sample = await sample_of(begun)

    assert [one.role for one in sample.segments or ()] == ["mender", "writer", "mender"]


async def test_the_roles_have_one_budget() -> None:
    async with rollout(calls=2) as (fleet, _, key, http):
        await ask(key, http, "writer", "one")
        await ask(key, http, "mender", "two")
        with pytest.raises(openai.APIStatusError, match="called the model more than 2 times"):
            await ask(key, http, "mender", "three")

    assert len(fleet.asked) == 2


async def test_a_client_finds_the_roles_among_the_models() -> None:
    async with rollout() as (_, _, key, http):
        client = client_of(key, http)

        assert [one.id async for one in client.models.list()] == ["writer", "mender"]
        assert (await client.models.retrieve("mender")).id == "mender"


async def test_a_client_of_anthropics_names_a_role_too_and_counts_its_tokens() -> None:
    async with rollout() as (fleet, _, key, http):
        asked = {"model": "mender", "max_tokens": 20, "messages": [{"role": "user", "content": "mend"}]}
        at = "http://recorder/v1/messages"

        counted = (await http.post(f"{at}/count_tokens", json=asked, headers={"x-api-key": key})).json()
        answer = (await http.post(at, json=asked, headers={"x-api-key": key})).json()

    assert [host for host, _, _ in fleet.asked] == ["critic"]
    assert (answer["model"], answer["usage"]["input_tokens"]) == ("critic", counted["input_tokens"])


async def test_a_program_without_roles_is_recorded_as_ever() -> None:
    async with rollout(ARM.model_copy(update={"roles": None})) as (fleet, begun, key, http):
        await ask(key, http, "mender", "mend")
        sample = await sample_of(begun)

    assert [host for host, _, _ in fleet.asked] == ["small"]
    written = sample.model_dump_json()
    assert 'role":"mender' not in written and "adapter_version" not in written and '"roles"' not in written
