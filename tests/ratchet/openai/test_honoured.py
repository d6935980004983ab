"""The one list of what a chat completion may ask: both fronts take and refuse the same, and say the same of it."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from ratchet.dialects.body import Refused, read_body
from ratchet.openai.chat import ChatRequest
from ratchet.openai.honoured import DIFFERENT, HARMLESS, HONOURED, REFUSED, WISHES
from ratchet.rollouts.application import Recorder
from ratchet.rollouts.rollout import RecordedRollout
from services.orchestrator.api.dialects import MESSAGES_FRONT, RESPONSES_FRONT, Front, chat_request
from tests.ratchet.conversation.speakers import SPECIAL, codec, template
from tests.ratchet.rollouts.scripted_engine import ScriptedEngine

ASKED: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "x"}]}
TOOL = {"type": "function", "function": {"name": "look"}}
ODD_TOOLS = [
    [{"type": "function", "function": {"name": "look"} | more}] for more in ({"parameters": "x"}, {"description": 5})
]
CALLED = {"role": "assistant", "content": "x", "function_call": {"name": "look", "arguments": "{}"}}
VALUES: dict[str, list[Any]] = {
    "model": ["small"],
    "messages": [ASKED["messages"], [], None, ["x"], [*ASKED["messages"], CALLED, *ASKED["messages"]]],
    "n": [1, 2],
    "temperature": [0, 0.5, "hot"],
    "top_p": [0.5],
    "max_tokens": [1, 1.0, 0, "many"],
    "max_completion_tokens": [1, 0.5],
    "stream": [False, "no"],
    "stream_options": [{"include_usage": True}, {"include_usage": "x"}, 5],
    "stop": ["", "x", [], ["a", "", "b"], list("abcde"), ["x"] * 17, [7], 7, ["x" * 1024], "x" * 1025],
    "tools": [[], [TOOL], ["look"], [{"type": "custom"}], [{"type": "function", "function": {"name": ""}}], *ODD_TOOLS],
    "tool_choice": ["auto", "none", "required", {"type": "any"}, "look", {"type": "function"}],
    "parallel_tool_calls": [True, False, "no"],
    "logprobs": [True, False, "yes"],
    "user": ["ann"],
    "metadata": [{"task_type": "sort"}],
    "seed": [7, 0, "x", 1.5, 10**400],
    "top_k": [5, -2, 1.5, "x"],
    "presence_penalty": [0, 0.0, 0.5, "x"],
    "frequency_penalty": [0, -0.5],
    "logit_bias": [{}, {"5": 0.5}, 5],
    "reasoning_effort": ["low", "x" * 300, 5],
    "verbosity": ["medium", "low", 5],
    "top_logprobs": [0, 3],
    "response_format": [{"type": "text"}, {"type": "json_object"}, {"type": "json_schema"}, {"type": "xml"}, "json"],
    "functions": [[], [{"name": "look"}]],
    "function_call": ["none", "auto", {"name": "look"}],
    "web_search_options": [{"x": 1}],
    "modalities": [[], ["text"], ["text", "audio"]],
    "audio": [{"voice": "x"}],
    "prediction": [{"type": "content", "content": "x"}],
    "store": [True],
    "service_tier": ["flex"],
    "prompt_cache_key": ["x"],
    "prompt_cache_retention": ["24h"],
    "safety_identifier": ["x"],
}
Told = tuple[bool, dict[str, Any]]
"""Whether it was taken, and what of it was in vain."""


def without_parameter(message: str) -> str:
    """A refusal without the name of the parameter that it begins with."""
    return re.sub(r"^[a-z_.]+: ", "", message)


def by_the_public_front(body: dict[str, Any]) -> Told:
    try:
        return True, dict(ChatRequest.model_validate(body).overruled)
    except ValidationError as error:
        ours = [fault["msg"] for fault in error.errors() if fault["type"] == "not_supported"]
        return False, {"why": without_parameter(ours[0].removeprefix("this fleet does not do that: "))} if ours else {}


def of_a_dialect_by_the_public_front(front: Front, body: dict[str, Any]) -> Told:
    try:
        return True, dict(chat_request(front, read_body(json.dumps(body).encode()), {}).overruled)
    except Refused as error:
        return False, {"why": without_parameter(str(error))}
    except RequestValidationError:
        return False, {}


async def by_the_recorder(body: dict[str, Any], path: str = "/v1/chat/completions") -> Told:
    engine = ScriptedEngine(lambda prompt: [*codec().encode("Yes."), SPECIAL.index("<|im_end|>")])
    rollout, recorder = RecordedRollout(template("qwen2_5"), engine, model="small"), Recorder()
    headers = {"authorization": f"Bearer {recorder.begin(rollout)}"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(recorder.application()), base_url="http://at") as http:
        reply = await http.post(path, json=body, headers=headers)
    if not reply.is_success:
        assert (reply.status_code, len(engine.seen)) == (400, 0)
        return False, {"why": without_parameter(reply.json()["error"]["message"])}
    return True, {name: values[0] for name, values in rollout.overruled.items()}


def test_every_field_is_in_one_list_and_has_values_here() -> None:
    lists = [set(HONOURED), set(WISHES), set(REFUSED), set(HARMLESS)]
    assert set(ChatRequest.model_fields) == set().union(*lists) == set(VALUES)
    assert sum(map(len, lists)) == len(VALUES)
    assert set(DIFFERENT) <= set(VALUES)


async def test_what_one_front_takes_or_refuses_the_other_does_too() -> None:
    taken = 0
    for name, values in VALUES.items():
        for value in [*values, *([None] if name not in ("model", "messages") else [])]:
            body = ASKED | {name: value}
            front, recorded = by_the_public_front(body), await by_the_recorder(body)
            if name in DIFFERENT and value is not None:
                continue
            assert front[0] == recorded[0], (name, value, recorded)
            shape = " must be " in recorded[1].get("why", "")
            assert shape or not front[1].get("why") or front == recorded, (name, value)
            assert not front[0] or front[1] == recorded[1], (name, value)
            assert front[0] or name not in HARMLESS
            taken += front[0]
    assert taken > 40


THINKING = {"type": "enabled", "budget_tokens": 9}
OF_DIALECTS: tuple[tuple[Front, list[dict[str, Any]]], ...] = (
    (
        MESSAGES_FRONT,
        [
            *({"stop_sequences": value} for value in ([], ["a", ""], ["x"] * 17, ["x" * 1025], "x")),
            *({"thinking": value} for value in ({}, {"type": "disabled"}, {"type": "adaptive"}, THINKING, "much")),
            *({"output_config": value} for value in ({}, {"effort": "low"}, {"effort": 5}, {"format": {"type": "x"}})),
            *(
                {"tools": [{"name": "look"} | more]}
                for more in ({}, {"input_schema": 5}, {"description": 5}, {"name": ""})
            ),
            *({"top_k": value} for value in (5, -2, 1.5, "x")),
            *(
                {"messages": [{"role": "user", "content": value}]}
                for value in ("x", [], None, 5, ["x"], [{"type": "image"}])
            ),
            *({"max_tokens": value} for value in (1.0, 0, None, "x")),
        ],
    ),
    (
        RESPONSES_FRONT,
        [
            *(
                {"reasoning": value}
                for value in ({}, {"effort": "low", "summary": "auto"}, {"effort": None}, {"effort": 5})
            ),
            *(
                {"text": value}
                for value in ({"verbosity": "low"}, {"verbosity": 5}, {"format": {"type": "json_object"}}, 5)
            ),
            *(
                {"tools": [{"type": "function", "name": "look"} | more]}
                for more in ({}, {"parameters": 5}, {"name": None})
            ),
            *({"input": value} for value in ("x", [], None, 5, [{"role": "x", "content": "x"}], [{"type": "x"}])),
            *({name: value} for name in ("store", "background") for value in (True, None)),
        ],
    ),
)


async def test_in_the_other_dialects_they_take_the_same_and_wish_for_the_same_by_one_name() -> None:
    wished = []
    for dialect, changes in OF_DIALECTS:
        for change in changes:
            body = (
                {"model": "small", "max_tokens": 9} if dialect is MESSAGES_FRONT else {"model": "small", "input": "x"}
            )
            body |= {"messages": ASKED["messages"]} if dialect is MESSAGES_FRONT else {}
            front = of_a_dialect_by_the_public_front(dialect, body | change)
            recorded = await by_the_recorder(body | change, dialect.dialect.path)
            assert front[0] == recorded[0], (change, front, recorded)
            assert not front[0] or front[1] == recorded[1], (change, front, recorded)
            assert front[0] or not front[1] or front == recorded, (change, front, recorded)
            wished += list(front[1].items()) if front[0] else []
    assert wished == [
        ("reasoning_effort", '{"type": "adaptive"}'),
        ("reasoning_effort", '{"budget_tokens": 9, "type": "enabled"}'),
        ("reasoning_effort", "low"),
        ("top_k", 5),
        ("top_k", -2),
        ("reasoning_effort", "low"),
        ("verbosity", "low"),
    ]


async def test_where_they_differ_the_reason_holds() -> None:
    assert (by_the_public_front(ASKED | {"n": 2})[0], await by_the_recorder(ASKED | {"n": 2})) == (
        True,
        (False, {"why": DIFFERENT["n"]}),
    )
    greedy = ASKED | {"temperature": 0, "seed": 7}
    assert by_the_public_front(greedy) == (True, {})
    assert await by_the_recorder(greedy) == (True, {"temperature": 0.0, "seed": 7.0})
    assert by_the_public_front(ASKED | {"seed": 7}) == await by_the_recorder(ASKED | {"seed": 7}) == (True, {"seed": 7})


@pytest.mark.parametrize("name", ["min_p", "thinking"])
async def test_a_field_in_no_list_is_refused_where_a_program_is_written_for_the_fleet(name: str) -> None:
    assert not by_the_public_front(ASKED | {name: 1})[0]
    assert await by_the_recorder(ASKED | {name: 1}) == (True, {})
