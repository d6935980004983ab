"""The chat front as OpenAI's own client sees it: answers, streams, errors, retries."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest

from ratchet.adapters.registry import RegistryStore
from ratchet.service.errors import SettingsError
from schemas.messages.task import AnswerFormat, ChatMessage
from services.orchestrator.settings import OrchestratorSettings
from tests.ratchet.adapters.making_decisions import promoted_by_hand
from tests.services.orchestrator.api.chatting import chatting
from tests.services.orchestrator.house import MINUTES
from tests.waiting import until


async def test_the_answer_is_the_best_of_the_group_with_who_gave_it_and_what_it_took(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        answer = await chat.ask("sort: dbca")

        (choice,) = answer.choices
        assert (choice.message.role, choice.message.content, choice.finish_reason) == (
            "assistant",
            "the best one",
            "stop",
        )
        assert answer.model == "small@v1.0.0"
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (3, 12, 15)
        assert answer.ratchet["task_id"] == chat.works[0].task_id
        assert (answer.ratchet["score"], answer.ratchet["samples"], answer.ratchet["group_size"]) == (0.9, [1], 3)
        assert answer._request_id == chat.works[0].task_id


async def test_one_users_turn_is_the_task_of_the_queue_and_a_conversation_reaches_the_model_whole(
    tmp_path: Path,
) -> None:
    async with chatting(tmp_path) as chat:
        parts = [{"type": "text", "text": "and"}, {"type": "text", "text": "now?"}]
        turns: list[Any] = [
            {"role": "developer", "content": "be short"},
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "hi", "refusal": None},
            {"role": "user", "content": parts},
        ]
        await chat.ask("sort: dbca")
        await chat.openai.chat.completions.create(model="small", messages=turns)

        assert chat.works[0].input == "sort: dbca"
        assert chat.works[1].input == (
            ChatMessage(role="system", content="be short"),
            ChatMessage(role="user", content="hello"),
            ChatMessage(role="assistant", content="hi"),
            ChatMessage(role="user", content="and\nnow?"),
        )


async def test_a_version_that_was_promoted_a_moment_ago_can_be_named(tmp_path: Path) -> None:
    async with chatting(tmp_path, pace=MINUTES) as chat:
        promoted_by_hand(
            RegistryStore.from_settings(chat.at.settings), "v1.0.1"
        )  # the orchestrator's next turn is minutes away

        assert (await chat.ask("sort: dbca", model="small@v1.0.1")).model == "small@v1.0.1"


async def test_parameters_reach_the_task(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        metadata = {"reference": "abcd", "criteria": "order", "task_type": "sort", "task_id": "mine", "shop": "7"}
        await chat.ask("x", temperature=0.5, top_p=0.9, max_tokens=7, user="ann", metadata=metadata)
        await chat.ask("x", temperature=0, n=3)
        await chat.ask("x", n=5)

        first, greedy, many = chat.works
        assert (first.sampling.temperature, first.sampling.top_p, first.sampling.max_tokens) == (0.5, 0.9, 7)
        assert (first.task_id, first.reference, first.criteria, first.task_type) == ("mine", "abcd", "order", "sort")
        assert first.session_id == "ann"
        assert json.loads(first.encode())["metadata"]["shop"] == "7"
        assert (greedy.sampling.n, many.sampling.n, first.sampling.n) == (1, 5, 2)


async def test_n_choices_are_the_n_best_and_greedy_ones_are_all_the_same(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        best = await chat.ask("x", n=2)
        chat.texts, chat.scores = ("only",), (None,)
        same = await chat.ask("x", n=2, temperature=0)

        assert [choice.message.content for choice in best.choices] == ["the best one", "middling"]
        assert best.usage.completion_tokens == len("the best onemiddling")
        assert [choice.message.content for choice in same.choices] == ["only", "only"]
        assert same.ratchet["score"] is None


async def test_a_stream_is_the_same_answer_in_pieces_and_ends_with_the_usage(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        stream = await chat.ask("x", stream=True, stream_options={"include_usage": True}, n=2)
        chunks = [chunk async for chunk in stream]

        texts = ["", ""]
        for chunk in chunks:
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
        assert texts == ["the best one", "middling"]
        assert len(chunks) == 2 + 3 + 1 + 2 + 1
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices].count("stop") == 2
        assert chunks[-1].choices == []
        assert chunks[-1].usage.completion_tokens == 20
        assert {chunk.model for chunk in chunks} == {"small@v1.0.0"}


async def test_a_stream_ends_with_done_and_names_its_task_before_the_answer(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        body = {"model": "small", "messages": [{"role": "user", "content": "x"}], "stream": True}
        answer = await chat.http.post("/v1/chat/completions", json=body)

        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-ratchet-task-id"] == chat.works[0].task_id
        assert answer.text.startswith(": on its way\n\n")
        assert answer.text.endswith("data: [DONE]\n\n")


async def test_what_the_agent_could_not_do_is_told_in_both_ways(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        chat.error = "the prompt has 9000 tokens; shorten it"

        with pytest.raises(openai.BadRequestError, match="9000 tokens") as refused:
            await chat.ask("x")
        with pytest.raises(openai.APIError, match="9000 tokens"):
            [chunk async for chunk in await chat.ask("x", stream=True)]

        assert refused.value.code == "task-failed"
        assert refused.value.response.headers["x-should-retry"] == "false"


async def test_an_expired_task_is_a_time_out_that_is_not_tried_again(tmp_path: Path) -> None:
    async with chatting(tmp_path, task_deadline_s=0.2) as chat:
        chat.is_silent = True

        with pytest.raises(openai.InternalServerError, match="no answer within 0 s") as late:
            await chat.ask("x")

        assert (late.value.status_code, late.value.response.headers["x-should-retry"]) == (504, "false")


async def test_an_unknown_model_is_not_found_and_those_there_are_are_named(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        for model in ("gpt-4o", "small@v1.0.9", "small@", "other@latest"):
            with pytest.raises(openai.NotFoundError, match=r"small@v1\.0\.0") as missing:
                await chat.ask("x", model=model)

            assert (missing.value.code, missing.value.param) == ("model_not_found", "model")


JSON = {"content-type": "application/json"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
REFUSED: list[dict[str, Any]] = [
    {"seed": "seven"},
    {"stop": ["x"] * 17},
    {"tools": [{"type": "function", "function": {"name": ""}}]},
    {"tool_choice": {"type": "function", "function": {"name": "f"}}},
    {"functions": [{"name": "f"}]},
    {"response_format": {"type": "xml"}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": []}}}},
    {"logprobs": "yes"},
    {"top_logprobs": 5},
    {"frequency_penalty": "much"},
    {"temperature": 9},
    {"n": 65},
    {"user": "a\nb"},
    {"extra_body": {"min_p": 0.1}},
]


async def test_what_is_not_honoured_is_refused_by_name(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        for fields in REFUSED:
            with pytest.raises(openai.BadRequestError) as refused:
                await chat.ask("x", **fields)

            name = next(iter(fields.get("extra_body", fields)))
            param = (refused.value.param or "").split(".")[0].split("[")[0]
            assert param == name
            assert f" {param}" in refused.value.message
            assert f"/{name}" not in refused.value.message
        assert chat.works == []


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_ends_before_a_stop_string_whoever_gave_it(tmp_path: Path, stream: bool) -> None:
    """The agent here knows nothing of them."""
    async with chatting(tmp_path) as chat:
        answer = await chat.ask("x", stop=["", " one", "st o"], stream=stream)
        if stream:
            chunks = [chunk async for chunk in answer]
            assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "the be"
            assert chunks[-1].choices[0].stop_reason == "st o"
        else:
            (choice,) = answer.choices
            assert (choice.message.content, choice.finish_reason, choice.stop_reason) == ("the be", "stop", "st o")
        await chat.ask("x")

        assert [work.sampling.stop for work in chat.works] == [(" one", "st o"), None]
        assert [b'"stop"' in work.encode() for work in chat.works] == [True, False]


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]
FORMS: list[tuple[dict[str, Any], AnswerFormat]] = [
    ({"response_format": {"type": "json_object"}}, AnswerFormat(type="json_object")),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}},
        AnswerFormat(type="json_schema", json_schema=SCHEMA),
    ),
    ({"tools": TOOLS, "tool_choice": "required"}, AnswerFormat(type="tool_call")),
    (
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "f"}}},
        AnswerFormat(type="tool_call", tool="f"),
    ),
]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_form_of_an_answer_is_the_task_s(tmp_path: Path, stream: bool) -> None:
    async with chatting(tmp_path) as chat:
        for fields, _ in FORMS:
            answer = await chat.ask("x", stream=stream, **fields)
            if stream:
                _ = [chunk async for chunk in answer]

        assert [work.format for work in chat.works] == [form for _, form in FORMS]


async def test_what_had_no_effect_is_told_with_the_answer(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        answer = await chat.ask("x", seed=7, frequency_penalty=0.5, reasoning_effort="low")
        plain = await chat.ask("x", seed=7, temperature=0)

        wished = {"seed": 7, "frequency_penalty": 0.5, "reasoning_effort": "low"}
        assert (answer.ratchet["overruled"], "overruled" in plain.ratchet) == (wished, False)


async def test_a_turn_may_have_a_name_and_an_answer_of_the_assistant_no_content(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        turns = [
            {"role": "user", "content": "x", "name": "ada"},
            {"role": "assistant", "content": None, "tool_calls": []},
            {"role": "user", "content": "y"},
        ]

        await chat.openai.chat.completions.create(model="small", messages=turns)  # type: ignore[call-overload]

        assert [turn.content for turn in chat.works[0].input if not isinstance(turn, str)] == ["x", "", "y"]


FAULTS: list[tuple[Any, str]] = [
    ({"role": "user", "content": 5}, "messages[0].content"),
    ({"role": "user", "content": [{"type": "text", "text": 5}]}, "messages[0].content[0].text"),
    ({"role": "user"}, "messages[0]"),
    ({"role": "tool", "content": "5"}, "messages[0].tool_call_id"),
    ({"role": "function", "content": "5"}, "messages[0].role"),
    ({"role": "user", "content": "5", "tool_calls": [CALL]}, "messages[0].tool_calls"),
    ({"role": "assistant", "tool_calls": [{"id": "c"}]}, "messages[0].tool_calls[0].function"),
    ({"content": "5"}, "messages[0].role"),
    ({"role": "user", "content": "x", "tool/s": 1}, "messages[0].tool/s"),
]


async def test_a_fault_is_named_by_its_place_in_what_the_client_sent(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        for turn, param in FAULTS:
            with pytest.raises(openai.BadRequestError) as refused:
                await chat.openai.chat.completions.create(model="small", messages=[turn])

            assert refused.value.param == param
            assert "TextPart" not in refused.value.message


async def test_what_is_not_there_is_an_error_to_openais_clients(tmp_path: Path) -> None:
    paths = ("", "/embeddings", "/chat/completions/abc", "/models/nobody", "/completions", "/tasks/nobody")
    async with chatting(tmp_path) as chat:
        for path in (*paths, "/adapters/small/versions/v9.9.9"):
            answer = await chat.http.get(f"/v1{path}")

            assert answer.status_code == 404, path
            assert answer.json()["error"]["type"] == "not_found_error", path


async def test_models_are_the_agents_and_the_versions_that_can_be_asked_for(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        listed = [model.id async for model in await chat.openai.models.list()]
        one = await chat.openai.models.retrieve("small@v1.0.0")
        answer = await chat.ask("x", model="other@v1.0.0")

        assert listed == ["small", "small@v1.0.0", "other", "other@v1.0.0"]
        assert (one.id, one.owned_by) == ("small@v1.0.0", "ratchet")
        assert answer.model == "other@v1.0.0"
        with pytest.raises(openai.NotFoundError):
            await chat.openai.models.retrieve("gpt-4o")


async def test_a_client_that_asks_for_other_models_changes_nothing_but_its_base_url(tmp_path: Path) -> None:
    async with chatting(tmp_path, chat_models="gpt-4o=other, *=small") as chat:
        named = await chat.ask("x", model="gpt-4o")
        any_other = await chat.ask("x", model="claude")
        own = await chat.ask("x", model="other@v1.0.0")
        listed = [model.id async for model in await chat.openai.models.list()]

        assert [named.model, any_other.model, own.model] == ["other@v1.0.0", "small@v1.0.0", "other@v1.0.0"]
        assert [work.agent_id for work in chat.works] == ["other", "small", "other"]
        assert listed[-1] == "gpt-4o" and "*" not in listed


@pytest.mark.parametrize("text", ["gpt-4o=nobody", "gpt-4o", "=small", "gpt-4o=small@v1.0.0"])
def test_a_name_of_no_agent_is_said_at_the_start(text: str) -> None:
    with pytest.raises(SettingsError, match=r"RATCHET_CHAT_MODELS: .* names no agent: .* there are small"):
        OrchestratorSettings.read(chat_models=text)


async def test_the_same_idempotency_key_is_one_task_and_must_ask_the_same(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        key = {"extra_headers": {"Idempotency-Key": "k1"}}

        answers = [await chat.ask("x", **key) for _ in range(2)]

        assert answers[0] == answers[1]
        assert len(chat.works) == 1
        with pytest.raises(openai.BadRequestError, match="used for another request"):
            await chat.ask("y", **key)


async def test_a_request_tried_again_after_a_time_out_joins_the_task_it_had_begun(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        chat.is_silent = True
        asking = asyncio.create_task(chat.openai.with_options(timeout=1.0, max_retries=20).chat.completions.create(
            model="small", messages=[{"role": "user", "content": "x"}]))  # fmt: skip
        await until(lambda: len(chat.works) == 1)
        await until(lambda: len(chat.requests) == 2)  # an answer that came between the two would end the task
        await chat.answer(chat.works[0])

        answer = await asking

        assert answer.choices[0].message.content == "the best one"
        assert len(chat.works) == 1


async def test_the_same_question_asked_anew_is_a_new_task(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.ask("x")
        await chat.ask("x")
        await chat.ask("x", extra_headers={"x-stainless-retry-count": "1"})

        assert len({work.task_id for work in chat.works}) == 3


async def test_a_client_that_waits_no_longer_gets_its_time_out(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        chat.is_silent = True

        with pytest.raises(openai.APITimeoutError):
            await chat.openai.with_options(timeout=0.1).chat.completions.create(
                model="small", messages=[{"role": "user", "content": "x"}]
            )


async def test_errors_before_the_route_have_openais_shape_too(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        missing = await chat.http.post("/v1/chat/completions", content=b"{", headers=JSON)
        foreign = await chat.http.get("/v1/models", headers={"Origin": "https://evil.example"})

        assert (missing.status_code, foreign.status_code) == (400, 403)
        for answer in (missing, foreign):
            assert {"message", "type", "param", "code"} == set(answer.json()["error"])
