"""Anthropic's messages: what its clients send and read. (The official client is no dependency of the tests.)"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from ratchet.conversation.segments import segments_of
from ratchet.rollouts.application import Recorder
from ratchet.rollouts.rollout import Budget, BudgetSpent, RecordedRollout
from tests.ratchet.conversation.speakers import SPECIAL, codec, template
from tests.ratchet.rollouts.scripted_engine import ScriptedEngine

CALL = '<tool_call>\n{"name": "look", "arguments": {"box": "red"}}\n</tool_call>'
TOOLS = [{"name": "look", "description": "Look.", "input_schema": {"type": "object", "properties": {}}}]
ASKED: dict[str, Any] = {
    "model": "any",
    "max_tokens": 50,
    "system": [{"type": "text", "text": "Be brief."}],
    "messages": [{"role": "user", "content": "What is in it?"}],
    "tools": TOOLS,
}


@asynccontextmanager
async def house(
    *answers: str, context: int = 8192, name: str = "qwen3"
) -> AsyncIterator[tuple[httpx.AsyncClient, RecordedRollout]]:
    said = iter(answers)
    engine = ScriptedEngine(lambda prompt: [*codec().encode(next(said)), SPECIAL.index("<|im_end|>")], context)
    rollout = RecordedRollout(template(name), engine, model="small")
    recorder = Recorder()
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(recorder.application()),
        base_url="http://recorder/v1",
        headers={"x-api-key": recorder.begin(rollout)},
    ) as client:
        yield client, rollout


async def test_an_agent_with_tools_and_thoughts_is_one_segment() -> None:
    async with house(f"<think>\nhm\n</think>\n\nI look.\n{CALL}", "<think>\nso\n</think>\n\nA coin.") as (
        client,
        rollout,
    ):
        first = (await client.post("/messages", json=ASKED)).json()
        thought, text, use = first["content"]
        assert (thought["thinking"], text["text"], use["name"], use["input"]) == (
            "hm",
            "I look.",
            "look",
            {"box": "red"},
        )
        assert (first["stop_reason"], first["type"], first["role"]) == ("tool_use", "message", "assistant")
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": [{"type": "text", "text": "a coin"}]}
        turns = [
            *ASKED["messages"],
            {"role": "assistant", "content": first["content"]},
            {"role": "user", "content": [result]},
        ]

        second = (await client.post("/messages", json=ASKED | {"messages": turns})).json()

        assert [block["type"] for block in second["content"]] == ["thinking", "text"]
        assert second["stop_reason"] == "end_turn"
        (segment,) = segments_of(rollout.conversation)
        assert [turn.role for turn in segment.turns] == ["system", "user", "assistant", "tool", "assistant"]
        assert rollout.conversation.normalised_count == 0


async def test_an_agent_that_closes_without_a_call_goes_on_in_its_segment_and_gets_none() -> None:
    async with house("I look.", CALL, name="qwen2_5") as (client, rollout):
        first = (await client.post("/messages", json=ASKED)).json()["content"]
        turns = [*ASKED["messages"], {"role": "assistant", "content": first}, *ASKED["messages"]]
        closing = ASKED | {"messages": turns, "tool_choice": {"type": "none"}}
        last = (await client.post("/messages", json=closing)).json()

        assert (last["content"], last["stop_reason"]) == ([{"type": "text", "text": CALL}], "end_turn")
        assert (len(segments_of(rollout.conversation)), rollout.conversation.breaks) == (1, {})


async def test_an_empty_answer_and_a_call_whose_arguments_are_no_object_are_gone_on_from() -> None:
    odd = '<tool_call>\n{"name": "look", "arguments": "red"}\n</tool_call>'
    async with house("", odd, "A coin.", name="qwen2_5") as (client, rollout):
        turns: list[Any] = list(ASKED["messages"])
        silent = (await client.post("/messages", json=ASKED)).json()["content"]
        turns += [{"role": "assistant", "content": silent}, {"role": "user", "content": "Well?"}]
        (use,) = (await client.post("/messages", json=ASKED | {"messages": turns})).json()["content"]
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": "a coin"}
        turns += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
        await client.post("/messages", json=ASKED | {"messages": turns})

        assert (silent, use["input"]) == ([], {})
        assert (len(segments_of(rollout.conversation)), rollout.conversation.breaks) == (1, {})


async def test_a_stream_has_the_events_of_its_blocks() -> None:
    async with house(f"<think>\nhm\n</think>\n\nI look.\n{CALL}") as (client, _):
        body = (await client.post("/messages", json=ASKED | {"stream": True})).text
        events = [json.loads(line.removeprefix("data: ")) for line in body.splitlines() if line.startswith("data: ")]

        assert [event["type"] for event in events if event["type"] != "content_block_delta"] == [
            "message_start",
            *["content_block_start", "content_block_stop"] * 3,
            "message_delta",
            "message_stop",
        ]
        deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
        assert "".join(delta.get("thinking", "") for delta in deltas) == "hm"
        assert "".join(delta.get("text", "") for delta in deltas) == "I look."
        assert json.loads("".join(delta.get("partial_json", "") for delta in deltas)) == {"box": "red"}
        assert events[-2]["delta"]["stop_reason"] == "tool_use"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_stop_sequence_that_was_found_is_told(stream: bool) -> None:
    async with house("One, two, three.") as (client, rollout):
        reply = await client.post("/messages", json=ASKED | {"stop_sequences": ["three", " two"], "stream": stream})
        if stream:
            told = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: ")]
            ended = next(event["delta"] for event in told if event["type"] == "message_delta")
        else:
            ended = reply.json()
            assert ended["content"] == [{"type": "text", "text": "One,"}]

        assert (ended["stop_reason"], ended["stop_sequence"]) == ("stop_sequence", " two")
        assert len(segments_of(rollout.conversation)) == 1


FORMS: list[dict[str, Any]] = [
    {"output_config": {"format": {"type": "json_schema", "schema": {"enum": [1]}}}},
    {"tools": [{"name": "look", "input_schema": {"type": "object"}}], "tool_choice": {"type": "any"}},
    {"tools": [{"name": "look", "input_schema": {"type": "object"}}], "tool_choice": {"type": "tool", "name": "look"}},
]


@pytest.mark.parametrize("form", FORMS, ids=["format", "any", "tool"])
async def test_an_answer_is_held_to_a_format_or_a_call(form: dict[str, Any]) -> None:
    async with house("A coin.") as (client, rollout):
        await client.post("/messages", json=ASKED | form)

        (segment,) = segments_of(rollout.conversation)
        assert [grammar.spans for grammar in segment.grammars] == [(0,)]
        assert rollout.overruled == {}


@pytest.mark.parametrize(
    ("given", "status", "said"),
    [
        ({"max_tokens": None}, 400, "max_tokens"),
        ({"tool_choice": {"type": "tool", "name": "see"}}, 400, "no tool of that name is offered"),
        ({"system": 7}, 400, "a text or a list of blocks"),
        ({"stop_sequences": "x"}, 400, "a list of texts"),
        ({"messages": [{"role": "user", "content": 7}]}, 400, "a list of blocks"),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [7]}]}]},
            400,
            "a list of blocks",
        ),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"enum": []}}}}, 400, "anyOf is empty"),
        ({"messages": []}, 400, "one at least"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, 400, "'image'"),
        ({"messages": [{"role": "user", "content": "what " * 99}]}, 400, " tokens > 80 maximum"),
        ({"messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": 7}]}, 7]}, 400, "a list"),
        ({"max_tokens": True}, 400, "a positive number"),
        ({"stream": "no"}, 400, "true or false"),
        ({"temperature": 10**400}, 400, "a number"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, 400, "is run by no one here"),
        ({"tools": [{}]}, 400, "has no name"),
        ({"messages": [*ASKED["messages"], {"role": "assistant", "content": "It is"}]}, 400, "last turn"),
        ({"mcp_servers": [{"type": "url", "url": "https://x", "name": "x"}]}, 400, "mcp_servers"),
        ({"container": "container_1"}, 400, "container"),
        ({"stop_sequences": ["x" * 2000]}, 400, "stop_sequences"),
        ({"tools": [{"name": 5}]}, 400, "tools"),
    ],
)
async def test_what_is_refused_has_anthropics_shape(given: dict[str, Any], status: int, said: str) -> None:
    async with house(context=80) as (client, rollout):
        reply = await client.post("/messages", json=ASKED | given)

        assert (reply.status_code, reply.json()["type"]) == (status, "error")
        assert reply.json()["error"]["type"] == "invalid_request_error" and said in reply.json()["error"]["message"]
        assert rollout.conversation.calls == []
        denied = await client.post("/messages", json=ASKED, headers={"x-api-key": "other"})
        assert (denied.status_code, denied.json()["error"]["type"]) == (401, "authentication_error")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_thread_goes_on_from_what_was_recorded(stream: bool) -> None:
    async with house(f"I look.\n{CALL}", "A coin.", "Gold.", name="qwen2_5") as (client, rollout):

        async def ask(**given: Any) -> str:
            """The id of the answer."""
            reply = await client.post("/messages", json={"model": "any", "max_tokens": 50, "stream": stream} | given)
            begun = reply.text.splitlines()[1].removeprefix("data: ") if stream else reply.text
            told = json.loads(begun)
            return str((told["message"] if stream else told)["id"])

        def on(name: str) -> dict[str, str]:
            return {"type": "continue", "previous_message_id": name}

        first = await ask(**ASKED, thread={"type": "create"})
        (call,) = (rollout.conversation.calls[0].message or {})["tool_calls"]
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": "a coin"}
        second = await ask(messages=[{"role": "user", "content": [result]}], thread=on(first))
        await ask(messages=[{"role": "user", "content": "Which?"}], thread=on(second))

        (segment,) = segments_of(rollout.conversation)
        roles = ["system", "user", "assistant", "tool", "assistant", "user", "assistant"]
        assert [turn.role for turn in segment.turns] == roles
        assert (rollout.conversation.breaks, len(segment.spans)) == ({}, 3)


@pytest.mark.parametrize(
    ("thread", "status", "code"),
    [
        ({"type": "continue", "previous_message_id": "msg_1"}, 404, "thread_not_found"),
        ({"type": "fork"}, 400, "thread_unsupported_request"),
    ],
)
async def test_a_thread_that_is_not_kept_is_refused_with_a_code_that_its_clients_recover_from(
    thread: dict[str, str], status: int, code: str
) -> None:
    async with house() as (client, rollout):
        reply = await client.post("/messages", json=ASKED | {"thread": thread})

    assert (reply.status_code, reply.json()["error"]["details"]) == (status, {"error_code": code})
    assert (rollout.conversation.calls, rollout.conversation.breaks) == ([], {})


async def test_it_answers_where_vercels_provider_looks_for_it_too() -> None:
    async with house("A coin.") as (client, _):
        said = await client.post("http://recorder/messages", json=ASKED)
        refused = await client.post("http://recorder/messages", json={"messages": []})

    assert (said.json()["content"][0]["text"], refused.json()["type"]) == ("A coin.", "error")


async def test_a_count_of_tokens_is_that_of_the_call_and_makes_none() -> None:
    async with house("I look.", "A coin.") as (client, rollout):
        counting = {name: value for name, value in ASKED.items() if name != "max_tokens"}
        turns = list(ASKED["messages"])
        for _ in range(2):
            (told,) = (await client.post("/messages/count_tokens", json=counting | {"messages": turns})).json().items()
            answer = (await client.post("/messages", json=ASKED | {"messages": turns})).json()
            assert told == ("input_tokens", answer["usage"]["input_tokens"])
            turns += [{"role": "assistant", "content": answer["content"]}, *ASKED["messages"]]
        refused = await client.post("/messages/count_tokens", json=counting | {"messages": []})
        long = await client.post("/messages", json=ASKED | {"stop_sequences": ["x" * 2000]})
        rollout.budget.end("its time is over")
        late = await client.post("/messages/count_tokens", json=counting)

        assert (len(rollout.conversation.calls), rollout.conversation.breaks) == (2, {})
        assert (refused.status_code, refused.json()["type"]) == (400, "error")
        assert late.status_code != 200 and "its time is over" in late.json()["error"]["message"]
        assert long.status_code == 400 and "a text of stop_sequences must have 1,024" in long.json()["error"]["message"]


def test_a_rollout_counts_tokens_so_often_as_its_calls_allow() -> None:
    budget = Budget(calls=2)
    for _ in range(8):
        budget.take_count()
    with pytest.raises(BudgetSpent, match="4 times for each call"):
        budget.take_count()
    budget.take_call()


async def test_who_sends_anthropics_version_gets_its_list_of_models_and_its_errors() -> None:
    async with house() as (client, _):
        client.headers["anthropic-version"] = "2023-06-01"
        (model,) = (listed := (await client.get("/models")).json())["data"]
        missing = await client.get("/files")
        assert (await client.get("/models/small")).json() == model

    assert (model["type"], model["id"], model["display_name"]) == ("model", "small", "small")
    assert (listed["has_more"], listed["first_id"], listed["last_id"]) == (False, "small", "small")
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "not_found_error")


async def test_a_stop_sequence_without_a_character_asks_for_nothing() -> None:
    async with house("A coin.") as (client, _):
        reply = await client.post("/messages", json=ASKED | {"stop_sequences": ["", "gold"]})

        assert (reply.json()["content"][0]["text"], reply.json()["stop_reason"]) == ("A coin.", "end_turn")


async def test_a_token_of_the_users_beside_the_key_changes_nothing() -> None:
    async with house("A coin.", "A coin.") as (client, _):
        key = client.headers["x-api-key"]
        both = {"authorization": "Bearer of-another-server"}
        alone = {"authorization": f"bearer {key}", "x-api-key": ""}
        replies = [await client.post("/messages", json=ASKED, headers=headers) for headers in (both, alone)]
        assert [reply.status_code for reply in replies] == [200, 200]
