"""The responses API, asked by OpenAI's own client: whole, streamed, with tools, and what it refuses."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from ratchet.conversation.segments import segments_of
from tests.ratchet.rollouts.test_openai_client import CALL, house

LOOK = {
    "type": "function",
    "name": "look",
    "description": "Look into a box.",
    "parameters": {"type": "object", "properties": {"box": {"type": "string"}}, "required": ["box"]},
    "strict": True,
}
ASKED: list[Any] = [{"role": "user", "content": [{"type": "input_text", "text": "What is in it?"}]}]
RESULT = {"type": "function_call_output", "output": "a coin"}


def kinds(response: Any) -> list[str]:
    return [item.type for item in response.output]


async def test_an_agent_with_tools_that_sends_its_items_back_is_one_segment() -> None:
    async with house(f"I look.\n{CALL}", "A coin.") as at:
        first = await at.client.responses.create(
            model="any", instructions="Be brief.", input=ASKED, tools=[LOOK], temperature=0.1
        )
        assert (kinds(first), first.status, first.output_text) == (["message", "function_call"], "completed", "I look.")
        call = first.output[1]
        assert (call.name, call.arguments) == ("look", '{"box": "red"}')
        history = [*ASKED, *[item.model_dump() for item in first.output], RESULT | {"call_id": call.call_id}]
        second = await at.client.responses.create(
            model="any", instructions="Be brief.", input=history, tools=[LOOK], store=False
        )

        assert (second.output_text, second.usage.output_tokens) == ("A coin.", len(at.engine.sampled[1]))
        (segment,) = segments_of(at.rollout.conversation)
        assert [turn.role for turn in segment.turns] == ["system", "user", "assistant", "tool", "assistant"]
        assert at.rollout.overruled == {"temperature": [0.1]}
        at.assert_recorded()


async def test_an_agent_that_closes_without_a_call_goes_on_in_its_segment_and_gets_none() -> None:
    async with house("I look.", CALL) as at:
        first = await at.client.responses.create(model="any", input=ASKED, tools=[LOOK])
        history = [*ASKED, *[item.model_dump() for item in first.output], *ASKED]
        last = await at.client.responses.create(model="any", input=history, tools=[LOOK], tool_choice="none")

        assert (kinds(last), last.output_text) == (["message"], CALL)
        assert (len(segments_of(at.rollout.conversation)), at.rollout.conversation.breaks) == (1, {})


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("by_response", [False, True], ids=["by item", "by response"])
async def test_a_client_may_name_what_it_was_told_and_need_not_send_it(by_response: bool, stream: bool) -> None:
    async with house(f"<think>\nHm.\n</think>\n\nI look.\n{CALL}", "A coin.") as at:

        async def stream_response(given: Any, **more: Any) -> Any:
            async with at.client.responses.stream(model="any", input=given, tools=[LOOK], **more) as events:
                return await events.get_final_response()

        whole = at.client.responses.create
        first = await (stream_response(ASKED) if stream else whole(model="any", input=ASKED, tools=[LOOK]))
        result = RESULT | {"call_id": first.output[2].call_id}
        named = [{"type": "item_reference", "id": item.id} for item in first.output]

        if by_response:
            second = await stream_response([result], previous_response_id=first.id)
        else:
            second = await stream_response([*ASKED, *named, result])

        assert (second.output_text, second.store) == ("A coin.", True)
        assert (len(segments_of(at.rollout.conversation)), at.rollout.conversation.breaks) == (1, {})
        at.assert_recorded()


async def test_what_was_not_to_be_stored_can_not_be_named() -> None:
    async with house("I look.") as at:
        first = await at.client.responses.create(model="any", input=ASKED, store=False)

        with pytest.raises(openai.BadRequestError, match="previous_response_id: this response is not kept") as refused:
            await at.client.responses.create(model="any", input=ASKED, previous_response_id=first.id)

    assert refused.value.code == "previous_response_not_found"


async def test_streamed_it_is_put_together_by_the_client_as_it_was_whole() -> None:
    said = f"<think>\nHm.\n</think>\n\nI look.\n{CALL}"
    async with house(said, "A coin.") as at:
        deltas: dict[str, str] = {}
        numbers, terminal = [], None
        stream = await at.client.responses.create(model="any", input=ASKED, tools=[LOOK], stream=True)
        async for event in stream:
            numbers.append(event.sequence_number)
            if event.type.endswith(".delta"):
                deltas[event.type] = deltas.get(event.type, "") + event.delta
            terminal = event
        assert numbers == list(range(len(numbers)))
        assert deltas == {
            "response.reasoning_text.delta": "Hm.",
            "response.output_text.delta": "I look.",
            "response.function_call_arguments.delta": '{"box": "red"}',
        }
        assert terminal is not None and terminal.type == "response.completed"
        whole = terminal.response
        assert (kinds(whole), whole.output_text) == (["reasoning", "message", "function_call"], "I look.")

        history = [
            *ASKED,
            *[item.model_dump(exclude_none=True) for item in whole.output],
            RESULT | {"call_id": whole.output[2].call_id},
        ]
        async with at.client.responses.stream(model="any", input=history, tools=[LOOK]) as stream:
            final = await stream.get_final_response()
        assert (final.output_text, final.status) == ("A coin.", "completed")
        at.assert_recorded()


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_is_held_to_a_format_or_a_call(stream: bool) -> None:
    form = {"format": {"type": "json_schema", "name": "coin", "schema": {"enum": ["heads", "tails"]}}}
    asked: list[dict[str, Any]] = [{"text": form}, {"tools": [LOOK], "tool_choice": "required"}]
    async with house('"heads"', CALL) as at:
        for fields in asked:
            told = await at.client.responses.create(model="any", input=ASKED, stream=stream, **fields)
            if stream:
                assert [event async for event in told][-1].type == "response.completed"

        assert None not in at.engine.grammars
        held = [grammar for segment in segments_of(at.rollout.conversation) for grammar in segment.grammars]
        assert [one.text for one in held] == [one.text for one in at.engine.grammars]


async def test_one_that_reaches_its_limit_is_incomplete() -> None:
    async with house("A coin.", "A coin.") as at:
        cut = await at.client.responses.create(model="any", input="What is in it?", max_output_tokens=1)
        stream = await at.client.responses.create(model="any", input="And now?", max_output_tokens=1, stream=True)
        last = [event async for event in stream][-1]

    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert last.type == "response.incomplete"


@pytest.mark.parametrize(
    ("given", "param", "said"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "send the whole history"),
        ({"conversation": "conv_1"}, "conversation", "send the whole history"),
        ({"background": True}, "background", "while its client waits"),
        ({"truncation": "auto"}, "truncation", "never cut"),
        ({"tools": [{"type": "web_search"}]}, "tools", "web_search"),
        ({"tool_choice": {"type": "function", "name": "look"}}, "tool_choice", "no tool of that name"),
        ({"text": {"format": "json"}}, "text.format", "an object"),
        ({"tools": "look"}, "tools", "a list of objects"),
        ({"text": {"format": {"type": "json_schema", "schema": {"enum": []}}}}, "text.format", "anyOf is empty"),
        ({"include": ["message.output_text.logprobs"]}, "include", "output_text"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input", "send it whole"),
        ({"input": [{"type": "computer_call_output"}]}, "input", "computer_call_output"),
        ({"input": []}, "input", "one at least"),
        ({"input": [{"type": "reasoning", "content": 5}]}, "input", "a list"),
        ({"input": [{"role": "user", "content": 5}]}, "input", "neither text nor"),
        ({"max_output_tokens": 0}, "max_output_tokens", "a positive number"),
        ({"tools": [{"type": "function"}]}, "tools", "no name"),
    ],
)
async def test_what_needs_more_than_the_request_is_refused_by_name(given: Any, param: str, said: str) -> None:
    async with house("A coin.") as at:
        with pytest.raises(openai.BadRequestError, match=said) as refused:
            await at.client.responses.create(**{"model": "any", "input": "Hi", **given})

    assert (refused.value.param, at.engine.seen) == (param, [])
    assert param in refused.value.body["message"]  # type: ignore[index]


async def test_a_failure_and_a_context_that_is_too_long_are_told_as_the_client_knows_them() -> None:
    async with house("A coin.", "A coin.", context=96) as at:
        at.engine.fails_after = 1
        with pytest.raises(openai.InternalServerError, match="the engine is gone"):
            await at.client.responses.create(model="any", input="Hi")
        at.engine.fails_after = 2
        stream = await at.client.responses.create(model="any", input="Hi", stream=True)
        last = [event async for event in stream][-1]
        assert (last.type, last.response.error.message) == ("response.failed", "the engine is gone")
        with pytest.raises(openai.BadRequestError) as refused:
            await at.client.responses.create(model="any", input="Hi " * 100)
        assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "input")
        with pytest.raises(openai.NotFoundError, match="there is no GET"):
            await at.client.responses.retrieve("resp_1")
