"""OpenAI's own client against the recorder: what it is told, and that the ids recorded are those the engine saw."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
import pytest

from ratchet.conversation.bridge import TOOL
from ratchet.conversation.segments import segments_of, usage_of
from ratchet.rollouts.application import Recorder
from ratchet.rollouts.rollout import RecordedRollout
from schemas.messages.work import Sampling
from tests.ratchet.conversation.speakers import SPECIAL, codec, template
from tests.ratchet.rollouts.exactness import exact_calls
from tests.ratchet.rollouts.scripted_engine import ScriptedEngine

END = SPECIAL.index("<|im_end|>")
CALL = '<tool_call>\n{"name": "look", "arguments": {"box": "red"}}\n</tool_call>'
ASKED: list[Any] = [{"role": "user", "content": "What is in it?"}]


@dataclass
class House:
    client: openai.AsyncOpenAI
    engine: ScriptedEngine
    rollout: RecordedRollout
    recorder: Recorder

    async def ask(self, messages: Sequence[Any] = ASKED, **given: Any) -> Any:
        return await self.client.chat.completions.create(model="small", messages=list(messages), **given)

    def assert_recorded(self) -> None:
        """Every id that the engine sampled, with its log-probability, behind all that it saw then."""
        assert exact_calls(self.engine, segments_of(self.rollout.conversation)) == sum(map(bool, self.engine.sampled))


@asynccontextmanager
async def house(
    *answers: str, name: str = "qwen2_5", context: int = 8192, stop: tuple[str, ...] | None = None
) -> AsyncIterator[House]:
    said = iter(answers)
    engine = ScriptedEngine(lambda prompt: [*codec().encode(next(said)), END], context)
    rollout = RecordedRollout(template(name), engine, model="small@v1.0.0", sampling=Sampling(stop=stop))
    recorder = Recorder()
    transport = httpx.ASGITransport(recorder.application())
    async with openai.AsyncOpenAI(
        api_key=recorder.begin(rollout),
        base_url="http://recorder/v1",
        max_retries=0,
        http_client=httpx.AsyncClient(transport=transport),
    ) as client:
        yield House(client, engine, rollout, recorder)


async def test_an_agent_with_tools_is_one_segment() -> None:
    async with house(f"I look.\n{CALL}", "A coin.") as at:
        first = await at.ask(tools=[TOOL], temperature=0.0, seed=3)
        (call,) = first.choices[0].message.tool_calls
        assert (first.choices[0].finish_reason, call.function.name) == ("tool_calls", "look")
        history = [
            *ASKED,
            first.choices[0].message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "a coin"},
        ]

        second = await at.ask(history, tools=[TOOL])

        assert (second.choices[0].message.content, second.choices[0].finish_reason) == ("A coin.", "stop")
        assert second.usage.prompt_tokens == len(at.engine.seen[1])
        (segment,) = segments_of(at.rollout.conversation)
        assert not at.rollout.conversation.breaks
        told = [(segment.tokens_before(turn), turn.seconds) for turn in segment.turns if turn.span is not None]
        assert [before for before, _ in told] == [len(seen) for seen in at.engine.seen]
        assert all(took is not None and 0 <= took < 60 for _, took in told)
        at.assert_recorded()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_an_agent_that_closes_without_a_call_goes_on_in_its_segment_and_gets_none(stream: bool) -> None:
    async with house("I look.", CALL) as at:
        first = await at.ask(tools=[TOOL])
        history = [*ASKED, first.choices[0].message.model_dump(exclude_none=True), *ASKED]

        last = await at.ask(history, tools=[TOOL], tool_choice="none", stream=stream)

        told = [chunk.choices[0].delta async for chunk in last] if stream else [last.choices[0].message]
        assert ("".join(one.content or "" for one in told), any(one.tool_calls for one in told)) == (CALL, False)
        assert (len(segments_of(at.rollout.conversation)), at.rollout.conversation.breaks) == (1, {})
        at.assert_recorded()


async def test_a_stream_is_the_same_and_holds_a_tool_call_back_until_it_is_whole() -> None:
    async with house(f"I look, é.\n{CALL}") as at:
        stream = await at.ask(tools=[TOOL], stream=True, stream_options={"include_usage": True})
        chunks = [chunk async for chunk in stream]

        deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
        assert "".join(delta.content or "" for delta in deltas) == "I look, é."
        assert sum(bool(delta.content) for delta in deltas) > 2
        ((call,),) = [delta.tool_calls for delta in deltas if delta.tool_calls]
        assert (call.function.name, call.function.arguments) == ("look", '{"box": "red"}')
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "tool_calls"
        assert chunks[-1].usage.completion_tokens == len(at.engine.sampled[0])
        at.assert_recorded()


async def test_stop_max_tokens_and_logprobs() -> None:
    async with house("one two. three four", "one two three", "hi") as at:
        stopped = await at.ask(stop=[". "])
        assert (stopped.choices[0].message.content, stopped.choices[0].finish_reason) == ("one two", "stop")
        cut = await at.ask(max_tokens=2)
        assert (cut.usage.completion_tokens, cut.choices[0].finish_reason) == (2, "length")
        assert at.engine.stops == [(". ",), ()]
        told = (await at.ask(logprobs=True)).choices[0].logprobs.content
        assert [one.logprob for one in told] == [token.logprob for token in at.engine.sampled[2]]
        at.assert_recorded()


async def test_log_probabilities_of_a_stream_come_with_its_last_choice() -> None:
    async with house("one two", "one two") as at:
        stream = await at.ask(logprobs=True, stream=True, stream_options={"include_usage": True})
        choices = [chunk.choices[0] async for chunk in stream if chunk.choices]
        assert [one.logprob for one in choices[-1].logprobs.content] == [
            token.logprob for token in at.engine.sampled[0]
        ]
        assert choices[-1].finish_reason == "stop" and not any(choice.logprobs for choice in choices[:-1])
        assert not any([chunk.choices[0].logprobs async for chunk in await at.ask(stream=True) if chunk.choices])


@pytest.mark.parametrize("stop", ["", [], ["", "four"]])
async def test_an_empty_stop_string_asks_for_nothing(stop: Any) -> None:
    async with house("one two") as at:
        assert (await at.ask(stop=stop)).choices[0].message.content == "one two"


async def test_a_message_whose_calls_are_no_list_is_refused() -> None:
    async with house("one") as at:
        with pytest.raises(openai.BadRequestError, match="no list"):
            await at.ask([*ASKED, {"role": "assistant", "content": "", "tool_calls": 5}, *ASKED])


async def test_a_refusal_was_text_and_a_role_that_no_template_knows_is_refused() -> None:
    async with house("one") as at:
        refusal: Any = {"role": "assistant", "content": [{"type": "refusal", "refusal": "I can't."}]}
        await at.ask([*ASKED, refusal, *ASKED])
        assert at.rollout.conversation.calls[0].tail[1]["content"] == "I can't."
        with pytest.raises(openai.BadRequestError, match="not 'critic'"):
            await at.ask([{"role": "critic", "content": "Hm."}])
        with pytest.raises(openai.BadRequestError, match="not 'critic'") as refused:
            await at.client.responses.create(model="any", input=[{"role": "critic", "content": "Hm."}])  # type: ignore[list-item, misc]
        assert (refused.value.param, len(at.engine.seen)) == ("input", 1)


async def test_a_fault_of_ours_has_the_clients_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    async with house("one") as at:
        monkeypatch.setattr(at.rollout, "answer", None)
        transport = httpx.ASGITransport(at.recorder.application(), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://recorder/v1") as http:
            for path, member in (("/chat/completions", "type"), ("/messages", "type")):
                body = {"messages": ASKED, "max_tokens": 5}
                reply = await http.post(path, json=body, headers={"x-api-key": at.client.api_key})
                assert (reply.status_code, reply.json()["error"][member]) == (500, "api_error")


async def test_streamed_what_may_begin_a_stop_string_waits_and_the_rest_does_not() -> None:
    async with house("one. two; three four", "1; 2") as at:
        streams = [await at.ask(stop=["; t"], stream=True), await at.ask(stop=["; t"], stream=True)]
        told = [[chunk.choices[0].delta.content or "" async for chunk in stream] for stream in streams]
        assert ["".join(parts) for parts in told] == ["one. two", "1; 2"]
        assert told[0] == ["", "one", ".", " two", ""]
        text = at.rollout.conversation.calls[0].message
        assert text is not None and text["content"] == "one. two"
        assert len(at.engine.sampled[0]) == len(codec().encode("one. two; t"))
        at.assert_recorded()


async def test_a_retry_replays_the_stored_answer() -> None:
    async with house("A coin.", "Another.") as at:
        first = await at.ask()
        again = await at.ask(extra_headers={"x-stainless-retry-count": "1"})

        assert again.choices[0].message.content == first.choices[0].message.content == "A coin."
        assert (len(at.engine.seen), at.rollout.conversation.replayed) == (1, 1)


async def test_calls_at_the_same_time_are_branches() -> None:
    async with house("A coin.", "Gold.") as at:
        at.engine.gate.clear()
        both = [asyncio.ensure_future(at.ask()), asyncio.ensure_future(at.ask())]
        await at.engine.asked.acquire()
        await at.engine.asked.acquire()
        at.engine.gate.set()
        answers = await asyncio.gather(*both)

        assert {answer.choices[0].message.content for answer in answers} == {"A coin.", "Gold."}
        usage = usage_of(at.rollout.conversation)
        assert (usage.calls, usage.turns) == (2, 1)
        assert dict(at.rollout.conversation.breaks) == {"parallel": 1}
        at.assert_recorded()


async def test_the_key_dies_with_the_rollout() -> None:
    async with house("A coin.") as at:
        assert [model.id async for model in at.client.models.list()] == ["small@v1.0.0"]
        assert (await at.client.models.retrieve("small@v1.0.0")).id == "small@v1.0.0"
        with pytest.raises(openai.NotFoundError, match="this rollout has"):
            await at.client.models.retrieve("gpt-4o")
        assert at.recorder.end(at.client.api_key) is at.rollout
        with pytest.raises(openai.AuthenticationError, match="no rollout that is under way"):
            await at.ask()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_an_engine_that_fails_half_way_is_an_error_and_no_answer(stream: bool) -> None:
    async with house("A coin.") as at:
        at.engine.fails_after = 2

        with pytest.raises(openai.APIError, match="gone") as failed:
            answer = await at.ask(stream=stream)
            async for _ in answer:
                pass

        assert isinstance(failed.value, openai.InternalServerError) is not stream
        assert dict(at.rollout.conversation.breaks) == {"aborted": 1}
        at.assert_recorded()


async def test_a_client_that_goes_away_within_its_body_leaves_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """It was 3 KB of traceback for each."""
    async with house() as at, at.recorder.serving() as base_url:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(base_url).port)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {at.client.api_key}"
        writer.write(f"{head}\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n".encode())
        assert b"100" in await reader.readline()  # the recorder waits for the body
        writer.write(b'{"messages"')
        await writer.drain()
        writer.close()

    assert caplog.text == ""


def of_client(kind: type[openai.APIStatusError], **given: Any) -> Callable[..., Any]:
    return pytest.param(kind, given, id="-".join(given))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        of_client(openai.BadRequestError, n=2),
        of_client(openai.BadRequestError, tool_choice={"type": "function", "function": {"name": "look"}}),
        of_client(openai.BadRequestError, tools=["look"]),
        of_client(openai.BadRequestError, stop=[7]),
        of_client(openai.BadRequestError, stop=["x"] * 17),
        of_client(openai.BadRequestError, response_format="json"),
        of_client(openai.BadRequestError, response_format={"type": "xml"}),
        of_client(openai.BadRequestError, logprobs=True, top_logprobs=3),
        of_client(openai.BadRequestError, max_tokens=0.5),
        of_client(openai.BadRequestError, max_completion_tokens=0),
        of_client(openai.BadRequestError, seed=10**400),
        of_client(openai.BadRequestError, temperature="hot"),
        of_client(openai.BadRequestError, stream="no"),
        of_client(openai.BadRequestError, tools=[{}]),
        of_client(openai.BadRequestError, tools=[{"type": "custom", "custom": {"name": "look"}}]),
        of_client(openai.BadRequestError, functions=[{"name": "look"}]),
    ],
)
async def test_what_is_not_honoured_is_refused_by_name(kind: type[openai.APIStatusError], given: Any) -> None:
    async with house() as at:
        with pytest.raises(kind) as refused:
            await at.ask(**given)
        assert refused.value.param in given  # type: ignore[operator]
        assert f"{refused.value.param}" in refused.value.body["message"]  # type: ignore[index]
        assert at.engine.seen == []


async def test_the_works_own_stop_strings_end_every_call() -> None:
    async with house("one two. three", "one, two. three", stop=(". ",)) as at:
        for stop, said, word in ((None, "one two", ". "), (["; ", ", "], "one", ", ")):
            told = await at.ask(stop=stop)
            assert (told.choices[0].message.content, told.choices[0].finish_reason) == (said, "stop")
            assert told.choices[0].stop_reason == word
        assert at.engine.stops == [(". ",), (". ", "; ", ", ")]
        at.assert_recorded()


@pytest.mark.parametrize("stream", [False, True])
async def test_without_parallel_calls_the_first_is_passed_on_and_all_tokens_are_recorded(stream: bool) -> None:
    async with house(f"I look.\n{CALL}\n{CALL}", "A coin.") as at:
        first = await at.ask(tools=[TOOL], parallel_tool_calls=False, stream=stream)
        if stream:
            deltas = [chunk.choices[0].delta async for chunk in first if chunk.choices]
            ((call,),) = [delta.tool_calls for delta in deltas if delta.tool_calls]
        else:
            (call,) = first.choices[0].message.tool_calls
        function = {"name": call.function.name, "arguments": call.function.arguments}
        answer = {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [{"id": call.id, "type": "function", "function": function}],
        }
        brought = {"role": "tool", "tool_call_id": call.id, "content": "a coin"}
        await at.ask([*ASKED, answer, brought], tools=[TOOL])

        assert len(segments_of(at.rollout.conversation)) == 1 and not at.rollout.conversation.breaks
        at.assert_recorded()


CHOSEN: list[Any] = ["required", {"type": "function", "function": {"name": "look"}}]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("choice", CHOSEN, ids=["any", "one"])
async def test_a_call_that_is_required_is_held_to_in_the_form_of_the_template(choice: Any, stream: bool) -> None:
    async with house("A coin.") as at:
        told = await at.ask(tools=[TOOL], tool_choice=choice, stream=stream)
        if stream:
            _ = [chunk async for chunk in told]

        (held,) = at.engine.grammars
        assert held is not None and '<tool_call>\\n{\\"name\\": \\"look\\"' in held.text
        (segment,) = segments_of(at.rollout.conversation)
        assert [(one.spans, one.sha256) for one in segment.grammars] == [((0,), held.sha256)]
        assert at.rollout.overruled == {}
        at.assert_recorded()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_form_holds_the_call_that_asks_for_it_and_no_other(stream: bool) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "coin", "schema": {"enum": ["heads", "tails"]}}}
    async with house('"heads"', "So it is.") as at:
        told = await at.ask(response_format=form, stream=stream)
        if stream:
            said = "".join([chunk.choices[0].delta.content or "" async for chunk in told if chunk.choices])
        else:
            said = told.choices[0].message.content
        await at.ask([*ASKED, {"role": "assistant", "content": said}, {"role": "user", "content": "So?"}])

        held, free = at.engine.grammars
        assert (said, free) == ('"heads"', None)
        (segment,) = segments_of(at.rollout.conversation)
        assert [(one.spans, one.text) for one in segment.grammars] == [((0,), held.text)]


async def test_a_form_that_no_answer_can_have_is_refused_with_the_place() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "nothing"}}}
    async with house("A coin.") as at:
        with pytest.raises(openai.BadRequestError, match="response_format: /properties/x: Invalid type") as refused:
            await at.ask(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})

        assert refused.value.param == "response_format"
        assert at.engine.grammars == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"messages": [{"role": "user", "content": "\\udc80"}]}', "surrogate"),
        (b'{"messages": [{"role": "user", "content": "\xff"}]}', "UTF-8"),
        (b'{"messages": [{"role": "user", "content": "x"}], "top_p": Infinity}', "not a JSON object"),
        (b"[]", "not a JSON object"),
    ],
)
async def test_a_body_that_is_no_text_is_refused_before_anything_is_sampled(body: bytes, said: str) -> None:
    async with house() as at:
        reply = await at.client._client.post(
            "http://recorder/v1/chat/completions",
            content=body,
            headers={"authorization": f"Bearer {at.client.api_key}"},
        )
        assert (reply.status_code, at.engine.seen) == (400, [])
        assert said in reply.json()["error"]["message"]


async def test_a_call_of_a_tool_that_was_not_offered_is_text() -> None:
    other = CALL.replace("look", "leave")
    async with house(f"I go.\n{other}", f"{CALL}\n{other}") as at:
        one, both = [(await at.ask(tools=[TOOL])).choices[0] for _ in range(2)]

    assert (one.message.tool_calls, one.message.content, one.finish_reason) == (None, f"I go.\n{other}", "stop")
    assert (both.message.tool_calls, both.message.content) == (None, f"{CALL}\n{other}")


async def test_a_packed_body_is_refused_in_a_sentence() -> None:
    async with house() as at:
        reply = await at.client._client.post(
            "http://recorder/v1/chat/completions",
            content=gzip.compress(b'{"messages": []}'),
            headers={"authorization": f"Bearer {at.client.api_key}", "content-encoding": "gzip"},
        )

    assert (reply.status_code, reply.json()["error"]["param"]) == (415, "content-encoding")
    assert "send it uncompressed" in reply.json()["error"]["message"]


async def test_a_client_of_http_1_0_gets_a_stream_without_chunks() -> None:
    async with house("A coin.") as at, at.recorder.serving() as base_url:
        body = json.dumps({"messages": ASKED, "stream": True}).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(base_url).port)
        head = f"POST /v1/chat/completions HTTP/1.0\r\nAuthorization: Bearer {at.client.api_key}\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

        headers, _, told = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()

    assert b"chunked" not in headers
    assert told.startswith(b"data: ") and told.endswith(b"data: [DONE]\n\n")


async def test_a_context_that_is_too_long_and_a_route_that_is_not_there() -> None:
    async with house("A coin.", context=20) as at:
        with pytest.raises(openai.BadRequestError) as long:
            await at.ask([{"role": "user", "content": "what " * 50}])
        assert (long.value.code, long.value.type) == ("context_length_exceeded", "invalid_request_error")
        assert at.rollout.conversation.calls == []
        with pytest.raises(openai.NotFoundError) as missing:
            await at.client.embeddings.create(model="small", input="a")
        assert "there is no POST /v1/embeddings" in str(missing.value)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_client_that_goes_away_ends_the_generation_and_what_was_sampled_is_kept(stream: bool) -> None:
    async with house("A coin of gold.", "A coin.") as at:
        at.engine.gate.clear()
        left, sent = asyncio.Event(), asyncio.Event()
        body = json.dumps({"model": "small", "messages": ASKED, "stream": stream}).encode()
        requests = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> dict[str, Any]:
            if (request := next(requests, None)) is not None:
                return request
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.set()

        headers = [(b"authorization", f"Bearer {at.client.api_key}".encode())]
        scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": headers}
        scope |= {"query_string": b"", "root_path": "", "asgi": {"spec_version": "2.3"}}
        call = asyncio.ensure_future(at.recorder.application()(scope, receive, send))
        await at.engine.asked.acquire()
        left.set()
        await call

        assert at.engine.closed == 1
        assert dict(at.rollout.conversation.breaks) == {"aborted": 1}
        at.engine.gate.set()
        assert (await at.ask(extra_headers={"x-stainless-retry-count": "1"})).choices[0].message.content == "A coin."
        at.assert_recorded()
