"""The chat front in Anthropic's messages and OpenAI's responses. (Anthropic's client is no dependency of the tests.)"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from schemas.messages.task import AnswerFormat, ChatMessage
from tests.services.orchestrator.api.chatting import chatting

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bonn"}}\n</tool_call>'
PARAMETERS: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
ASKED: Any = {"role": "user", "content": "Is it warm in Bonn?"}
MESSAGES: dict[str, Any] = {
    "model": "small",
    "max_tokens": 50,
    "system": "Be brief.",
    "messages": [ASKED],
    "tools": [{"name": "weather", "input_schema": PARAMETERS}],
}
TOLD = f"<think>\nhm\n</think>\n\nLet me see.\n{CALL}"


async def test_a_conversation_by_messages_is_a_session_whose_calls_pass_to_the_caller(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        chat.texts = ("no", TOLD, "no")
        wishes = {"top_k": 5, "stop_sequences": ["END"], "tool_choice": {"type": "any"}}
        first = (await chat.http.post("/v1/messages?beta=true", json=MESSAGES | wishes)).json()
        thought, text, use = first["content"]
        assert (thought["thinking"], text["text"], use["input"]) == ("hm", "Let me see.", {"city": "Bonn"})
        assert (first["stop_reason"], first["model"]) == ("tool_use", "small@v1.0.0")
        assert (first["usage"]["input_tokens"], first["ratchet"]["task_id"]) == (3, chat.works[0].task_id)
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": "30"}
        turns = [ASKED, {"role": "assistant", "content": first["content"]}, {"role": "user", "content": [result]}]
        chat.texts = ("no", "Yes, 30 degrees.", "no")

        body = (await chat.http.post("/v1/messages", json=MESSAGES | {"messages": turns, "stream": True})).text

        events = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: ")]
        deltas = [event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta"]
        assert ("".join(deltas), len(deltas), events[-1]["type"]) == ("Yes, 30 degrees.", 3, "message_stop")
        one, other = chat.works
        assert first["ratchet"]["overruled"] == {"top_k": 5}
        assert one.format == AnswerFormat(type="tool_call")
        assert (one.sampling.stop, other.sampling.stop) == (("END",), None)
        assert isinstance(other.input, tuple) and one.sampling.max_tokens == 50
        assert (other.input[0], other.input[-1].role) == (ChatMessage(role="system", content="Be brief."), "tool")
        assert one.session_id == other.session_id is not None


FORM = {"type": "json_schema", "schema": PARAMETERS}
RESPONSES: dict[str, Any] = {"model": "small", "input": "x"}
TOOLS = [{"type": "function", "name": "weather", "parameters": PARAMETERS}]
FORMS: list[tuple[str, dict[str, Any], AnswerFormat]] = [
    ("messages", {"output_config": {"format": FORM}}, AnswerFormat(type="json_schema", json_schema=PARAMETERS)),
    ("messages", {"tool_choice": {"type": "tool", "name": "weather"}}, AnswerFormat(type="tool_call", tool="weather")),
    ("responses", {"text": {"format": FORM}}, AnswerFormat(type="json_schema", json_schema=PARAMETERS)),
    ("responses", {"text": {"format": {"type": "json_object"}}}, AnswerFormat(type="json_object")),
    ("responses", {"tools": TOOLS, "tool_choice": "required"}, AnswerFormat(type="tool_call")),
]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_form_of_an_answer_is_the_task_s(tmp_path: Path, stream: bool) -> None:
    async with chatting(tmp_path) as chat:
        for route, fields, _ in FORMS:
            asked = MESSAGES if route == "messages" else RESPONSES
            reply = await chat.http.post(f"/v1/{route}", json=asked | fields | {"stream": stream})
            assert reply.status_code == 200, reply.text

        assert [work.format for work in chat.works] == [form for *_, form in FORMS]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_sequence_that_was_found_is_told_as_the_recorder_tells_it(tmp_path: Path, stream: bool) -> None:
    async with chatting(tmp_path) as chat:
        chat.texts = ("no", "one two three", "no")
        given = MESSAGES | {"stop_sequences": ["", "three", " two"], "stream": stream}

        reply = await chat.http.post("/v1/messages", json=given)

        told = (
            json.loads(reply.text.split("event: message_delta\ndata: ")[1].partition("\n")[0])["delta"]
            if stream
            else (reply.json())
        )
        assert (told["stop_reason"], told["stop_sequence"]) == ("stop_sequence", " two")
        assert "three" not in reply.text


async def test_a_conversation_by_responses_is_put_together_by_openais_client(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        chat.texts = ("no", TOLD, "no")
        given: Any = {
            "model": "small",
            "instructions": "Be brief.",
            "tools": [{"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": None}],
        }
        wished: Any = {"reasoning": {"effort": "low", "summary": "auto"}, "text": {"verbosity": "low"}}
        first = await chat.openai.responses.create(input=[ASKED], metadata={"task_id": "mine"}, **wished, **given)
        assert [item.type for item in first.output] == ["reasoning", "message", "function_call"]
        result = {"type": "function_call_output", "call_id": first.output[2].call_id, "output": "30"}  # type: ignore[union-attr]
        history: Any = [ASKED, *[item.model_dump() for item in first.output], result]
        chat.texts = ("no", "Yes, 30 degrees.", "no")

        async with chat.openai.responses.stream(input=history, **given) as stream:
            last = await stream.get_final_response()

        assert (last.output_text, last.status, last.model) == ("Yes, 30 degrees.", "completed", "small@v1.0.0")
        told = first.ratchet  # type: ignore[attr-defined]
        assert chat.works[0].task_id == "mine" == told["task_id"]
        assert told["overruled"] == {"reasoning_effort": "low", "verbosity": "low"}
        assert chat.works[0].session_id == chat.works[1].session_id is not None


REFUSED: tuple[tuple[dict[str, Any], int, str], ...] = (
    ({"model": "none"}, 404, "does not exist"),
    ({"model": None}, 400, "model: must be a text"),
    ({"colour": "red"}, 400, "colour: this fleet does not do that"),
    ({"stop_sequences": ["x"] * 17}, 400, "stop_sequences must be 16 texts at most"),
    ({"temperature": 9}, 400, "temperature: must be less"),
    ({"tool_choice": {"type": "tool", "name": "climate"}}, 400, "no tool of that name"),
    ({"messages": []}, 400, "one at least"),
    ({"thinking": "much"}, 400, "thinking: "),
    ({"output_config": {"pace": "slow"}}, 400, "output_config.pace: this fleet does not do that"),
    ({"metadata": {"user_id": "x" * 201}}, 400, "metadata.user_id: must have at most 200 characters"),
)


async def test_what_messages_can_not_have_is_refused_in_anthropics_shape(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        for given, status, said in REFUSED:
            reply = await chat.http.post("/v1/messages", json=MESSAGES | given)

            assert (reply.status_code, reply.json()["type"]) == (status, "error")
            assert reply.json()["error"]["type"] == ("not_found_error" if status == 404 else "invalid_request_error")
            assert said in reply.json()["error"]["message"]
        assert chat.works == []
        threaded = MESSAGES | {"thread": {"type": "continue", "previous_message_id": "msg_1"}}
        error = (await chat.http.post("/v1/messages", json=threaded)).json()["error"]
        assert error["details"] == {"error_code": "thread_not_found"}


async def test_a_thread_of_anthropics_goes_on_with_new_messages_alone(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        first = (await chat.http.post("/v1/messages", json=MESSAGES | {"thread": {"type": "create"}})).json()
        thread = {"type": "continue", "previous_message_id": first["id"]}
        more = {"messages": [{"role": "user", "content": "And in Rome?"}], "thread": thread}
        await chat.http.post("/v1/messages", json={"model": "small", "max_tokens": 50} | more)

        before, after = ([turn.content for turn in work.input if isinstance(turn, ChatMessage)] for work in chat.works)
        assert after == [*before, "the best one", "And in Rome?"]


async def test_a_response_may_be_named_instead_of_sent(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        first = await chat.openai.responses.create(model="small", input=[ASKED])
        named: Any = [ASKED, {"type": "item_reference", "id": first.output[0].id}, ASKED]
        async with chat.openai.responses.stream(model="small", input=named) as stream:
            second = await stream.get_final_response()

        await chat.openai.responses.create(model="small", input="And in Rome?", previous_response_id=second.id)

        turns = [[turn.content for turn in work.input if isinstance(turn, ChatMessage)] for work in chat.works[1:]]
        begun = [ASKED["content"], "the best one", ASKED["content"]]
        assert turns == [begun, [*begun, "the best one", "And in Rome?"]]
        assert len({work.session_id for work in chat.works[1:]}) == 1


async def test_what_a_request_names_is_bounded_as_a_message_is(tmp_path: Path) -> None:
    async with chatting(tmp_path, max_message_bytes=4096) as chat:
        first = await chat.openai.responses.create(model="small", input=[ASKED])
        named: Any = {"type": "item_reference", "id": first.output[0].id}

        with pytest.raises(openai.BadRequestError, match=r"4,096 bytes \(RATCHET_MAX_MESSAGE_BYTES\)") as refused:
            await chat.openai.responses.create(model="small", input=[named] * 40)

        assert (refused.value.param, len(chat.works)) == ("input", 1)


async def test_what_fails_or_is_not_honoured_is_told_as_each_client_knows_it(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        with pytest.raises(openai.BadRequestError, match="send the whole history") as refused:
            await chat.openai.responses.create(model="small", input="x", previous_response_id="resp_1")
        with pytest.raises(openai.BadRequestError, match="must be less") as hot:
            await chat.openai.responses.create(model="small", input="x", temperature=9)
        image: Any = [{"role": "user", "content": [{"type": "input_image"}]}]
        with pytest.raises(openai.BadRequestError, match="reads text only") as shown:
            await chat.openai.responses.create(model="small", input=image)
        params = [error.value.param for error in (refused, hot, shown)]
        assert params == ["previous_response_id", "temperature", "input"]
        chat.error = "9000 tokens"
        with pytest.raises(openai.APIError, match="9000 tokens"):
            [event async for event in await chat.openai.responses.create(model="small", input="x", stream=True)]
        streamed = (await chat.http.post("/v1/messages", json=MESSAGES | {"stream": True})).text
        assert 'event: error\ndata: {"type": "error", "error": {"type": "invalid_request_error"' in streamed
        assert (await chat.http.post("/v1/messages", json=MESSAGES)).json()["error"]["code"] == "task-failed"
        listed = (await chat.http.get("/v1/models?limit=1000", headers={"anthropic-version": "2023-06-01"})).json()
        assert (listed["data"][0]["display_name"], listed["has_more"]) == ("small", False)
        one = (await chat.http.get("/v1/models/small", headers={"anthropic-version": "2023-06-01"})).json()
        assert one == listed["data"][0]
