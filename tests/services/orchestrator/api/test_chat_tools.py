"""Tools, log-probabilities and conversations through the chat front, as OpenAI's own client sees them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.services.orchestrator.api.chatting import Chatting, chatting

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "default": None}}},
        "strict": True,
    },
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bonn"}}\n</tool_call>'
ASKED: Any = {"role": "user", "content": "Is it warm in Bonn?"}


async def ask(chat: Chatting, *turns: Any, **fields: Any) -> Any:
    fields = {"model": "small", "tools": [WEATHER]} | fields
    return await chat.openai.chat.completions.create(messages=list(turns), **fields)


async def test_a_tool_call_passes_to_the_caller_and_what_it_brought_to_the_model(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        # given an agent whose best answer calls a tool
        chat.texts = ("no", f"Let me see.\n{CALL}", "no")

        called = await ask(chat, ASKED)

        (choice,) = called.choices
        (call,) = choice.message.tool_calls
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Let me see.")
        assert (call.type, call.function.name, json.loads(call.function.arguments)) == (
            "function",
            "weather",
            {"city": "Bonn"},
        )
        # when the caller has run it, and sends all back as its SDK wrote it
        chat.texts = ("no", "Yes, 30 degrees.", "no")
        brought = {"role": "tool", "tool_call_id": call.id, "content": "30"}
        told = await ask(chat, ASKED, choice.message.model_dump(exclude_unset=True), brought)

        # then the model gets the whole history, and both are of one session
        assert told.choices[0].message.content == "Yes, 30 degrees."
        assert told.choices[0].message.tool_calls is None
        first, second = chat.works
        assert not isinstance(second.input, str)
        _, assistant, tool = second.input
        assert assistant.tool_calls is not None
        assert (assistant.content, assistant.tool_calls[0].id, tool.tool_call_id) == ("Let me see.", call.id, call.id)
        assert (tool.role, tool.content) == ("tool", "30")
        assert first.session_id == second.session_id is not None
        assert first.session_id != first.task_id
        # and what the model is offered is what was offered, null included
        assert first.tools is not None
        assert first.tools[0].function.parameters == WEATHER["function"]["parameters"]


async def test_the_log_has_the_tools_of_a_task_and_of_no_other(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        with_tools = await ask(chat, ASKED)
        without = await ask(chat, ASKED, tools=[])

        histories = [
            (await chat.http.get(f"/v1/tasks/{one.ratchet['task_id']}")).json() for one in (with_tools, without)
        ]
        assert histories[0]["tools"][0]["function"]["name"] == "weather"
        assert histories[1]["tools"] is None
        logs = "".join(path.read_text() for path in tmp_path.rglob("agent_interactions.jsonl"))
        assert [("tools" in json.loads(line)) for line in logs.splitlines()] == [True] * 3 + [False] * 3


async def test_only_calls_of_tools_that_were_offered_are_calls(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        chat.texts = ("no", CALL, "no")
        unasked = await ask(chat, ASKED, tools=[])
        not_now = await ask(chat, ASKED, tool_choice="none")
        other = await ask(chat, ASKED, tools=[{"type": "function", "function": {"name": "clock"}}])
        chat.texts = ("no", '{"name": "weather", "parameters": {"city": "Bonn"}}', "no")
        llama = await ask(chat, ASKED)

        for answer in (unasked, not_now, other):
            assert (answer.choices[0].message.tool_calls, answer.choices[0].finish_reason) == (None, "stop")
            assert answer.choices[0].message.content == CALL
        assert llama.choices[0].message.tool_calls[0].function.name == "weather"
        assert llama.choices[0].message.content is None
        assert chat.works[1].tools is None


async def test_a_stream_brings_whole_calls_and_the_thought_apart_from_the_answer(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        chat.texts = ("no", f"<think>\nhot or cold\n</think>\n\nSee: {CALL}{CALL}", "no")
        chunks = [chunk async for chunk in await ask(chat, ASKED, stream=True)]
        one = await ask(chat, ASKED, parallel_tool_calls=False)

        deltas = [chunk.choices[0].delta for chunk in chunks]
        calls = [call for delta in deltas for call in delta.tool_calls or ()]
        assert [(call.index, call.function.name) for call in calls] == [(0, "weather"), (1, "weather")]
        assert len({call.id for call in calls}) == 2
        assert "".join(delta.content or "" for delta in deltas) == "See:"
        assert "".join((delta.model_extra or {}).get("reasoning_content") or "" for delta in deltas) == "hot or cold"
        assert chunks[-1].choices[0].finish_reason == "tool_calls"
        assert len(one.choices[0].message.tool_calls) == 1


async def test_a_chat_goes_on_by_its_own_history_and_strangers_share_nothing(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        answer = (await ask(chat, ASKED, tools=None)).choices[0].message
        assert answer.content == "the best one"
        said = {"role": "assistant", "content": f" {answer.content}\n"}
        more = {"role": "user", "content": "Sure?"}

        second = (await ask(chat, ASKED, said, more, tools=None)).choices[0].message.model_dump()
        await ask(chat, ASKED, said, more, second, more, tools=None)
        await ask(chat, {"role": "user", "content": "another"}, said, more, tools=None)
        await ask(chat, ASKED, said, more, tools=None, user="ann")

        sessions = [work.session_id for work in chat.works]
        assert sessions[0] is None
        assert sessions[1] == sessions[2] is not None
        assert sessions[3:] == [None, "ann"]


async def test_a_request_with_tools_that_is_tried_again_is_the_same_task(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        key = {"Idempotency-Key": "once"}
        first = await ask(chat, ASKED, extra_headers=key)
        again = await ask(chat, ASKED, extra_headers=key)

        assert first.id == again.id
        assert len(chat.works) == 1
        with pytest.raises(openai.BadRequestError, match="another request"):
            await ask(chat, ASKED, tools=None, extra_headers=key)


async def test_log_probabilities_are_told_token_by_token_where_the_agent_tells_them(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        chat.tells_tokens = True
        whole = await ask(chat, ASKED, logprobs=True)
        chunks = [chunk async for chunk in await ask(chat, ASKED, logprobs=True, stream=True)]
        unasked = await ask(chat, ASKED)

        told = whole.choices[0].logprobs.content
        assert "".join(token.token for token in told) == "the best one"
        assert {token.logprob for token in told} == {-0.1}
        assert bytes(told[0].bytes) == b"t"
        streamed = [
            token for chunk in chunks if chunk.choices[0].logprobs for token in chunk.choices[0].logprobs.content
        ]
        assert streamed == told
        assert unasked.choices[0].logprobs is None
        assert [work.needs_token_texts for work in chat.works] == [True, True, None]


async def test_an_agent_that_tells_none_is_a_refusal(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        with pytest.raises(openai.BadRequestError, match="tells no log-probabilities") as refused:
            await ask(chat, ASKED, logprobs=True)
        with pytest.raises(openai.APIError, match="tells no log-probabilities"):
            [chunk async for chunk in await ask(chat, ASKED, logprobs=True, stream=True)]

        assert (refused.value.param, refused.value.code) == ("logprobs", "no-logprobs")
