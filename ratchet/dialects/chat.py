"""OpenAI's chat completions: requests read as calls of a model, and answers written in their shapes, streamed or whole.

Both fronts stream by `write_chunk`. The public front has a typed form of a whole answer, which its OpenAPI document
describes (ratchet/openai/chat.py), with several choices and what it tells of the task.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from ratchet.dialects.body import FAILURES, Refused, refusal_of, require_known_roles
from ratchet.dialects.dialect import (
    Answers,
    Body,
    Dialect,
    Growth,
    Keep,
    ModelRequest,
    PartialAnswer,
    TextKind,
    count_retries,
    read_form,
    read_function,
    read_wishes,
    wants_one_call,
)
from ratchet.openai.honoured import DIFFERENT, REFUSED, refusal, stop_strings
from ratchet.openai.tools import CHOICES, UNKNOWN_CHOICE, choice_of

DELTAS: Mapping[TextKind, str] = {"reasoning": "reasoning_content", "content": "content"}
"""Names of the kinds of text in a message."""
FIRST_DELTA: Mapping[str, Any] = {"role": "assistant", "content": ""}
DONE = "data: [DONE]\n\n"


def read_request(body: Body, headers: Mapping[str, str]) -> ModelRequest:
    """Raises Refused for what is not honoured."""
    messages, tools = body.get("messages"), body.get("tools") or []
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        raise Refused(400, "messages must be a list of messages, one at least", param="messages")
    if body.get("n") not in (None, 1):
        raise Refused(400, DIFFERENT["n"], param="n")
    choice = choice_of(body.get("tool_choice"))
    if choice not in CHOICES:
        raise Refused(400, UNKNOWN_CHOICE, param="tool_choice")
    for tool in tools:
        if tool.get("type") != "function" or not isinstance(tool.get("function"), dict):
            raise Refused(400, f"a tool is {tool.get('type')!r}: functions with a name are taken", param="tools")
        read_function(tool["function"])
    for name in REFUSED:
        if why := refusal(name, body.get(name)):
            raise Refused(400, why, param=name)
    for name in ("audio", "function_call"):
        if why := next((why for message in messages if (why := refusal(name, message.get(name)))), None):
            raise Refused(400, why, param="messages")
    try:
        stop = stop_strings(body.get("stop"))
    except ValueError as error:
        raise Refused(400, str(error), param="stop") from None
    return ModelRequest(
        messages=require_known_roles(messages),
        tools=tools,
        calls=choice != "none",
        max_tokens=body.get("max_completion_tokens") or body.get("max_tokens"),
        stop=stop,
        retry=count_retries(headers),
        streamed=bool(body.get("stream")),
        one_call=wants_one_call(body),
        wants=read_wishes(body),
        format=read_form(body, tools, "response_format"),
    )


def write_message(answer: PartialAnswer) -> dict[str, Any]:
    """Return the assistant's message, as clients send it back and as templates read it."""
    calls = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, (name, arguments) in zip(answer.call_ids, answer.parsed.calls, strict=True)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": answer.parsed.content or (None if calls else "")}
    if answer.parsed.reasoning:
        message["reasoning_content"] = answer.parsed.reasoning
    return message | ({"tool_calls": calls} if calls else {})


def write_answer(model: str, body: Body, answer: PartialAnswer) -> dict[str, Any]:
    choice = {"index": 0, "message": {"refusal": None} | write_message(answer), **_end(body, answer)}
    return _head(model) | {"object": "chat.completion", "choices": [choice], "usage": _usage(answer)}


async def stream_answer(
    model: str, body: Body, first: PartialAnswer, answers: Answers, keep: Keep
) -> AsyncIterator[str]:
    """The log-probabilities of all tokens come with the last chunk that has a choice."""
    growth, head = Growth(), _head(model)
    begun = begin_chunk(head)

    def find_delta(answer: PartialAnswer) -> dict[str, Any]:
        return {DELTAS[kind]: text for kind, text in growth.find_new(answer)}

    async with aclosing(answers):
        yield write_chunk(begun, FIRST_DELTA)
        answer = first
        if delta := find_delta(answer):
            yield write_chunk(begun, delta)
        try:
            async for answer in answers:
                if delta := find_delta(answer):
                    yield write_chunk(begun, delta)
        except FAILURES as error:
            yield CHAT.stream_error(refusal_of(error).error)
            return
        if calls := write_message(answer).get("tool_calls"):
            yield write_chunk(begun, calls_delta(calls))
        yield write_chunk(begun, {}, **_end(body, answer))
        if (body.get("stream_options") or {}).get("include_usage"):
            yield write_usage(begun, _usage(answer))
        yield DONE


def begin_chunk(head: Mapping[str, Any]) -> str:
    """Return what all chunks of a stream begin with. `head`: the fields that are the same in each."""
    return f"data: {json.dumps({**head, 'object': 'chat.completion.chunk'})[:-1]}"


def write_chunk(begun: str, delta: Mapping[str, Any], index: int = 0, **end: Any) -> str:
    """Return the event of a chunk with one choice. `end`: fields of the choice, in its last chunk."""
    choice = {"index": index, "delta": delta, "finish_reason": None, "logprobs": None} | end
    return f'{begun}, "choices": [{json.dumps(choice)}]}}\n\n'


def write_usage(begun: str, usage: Mapping[str, int]) -> str:
    """Return the event of the chunk that has no choice."""
    return f'{begun}, "choices": [], "usage": {json.dumps(usage)}}}\n\n'


def calls_delta(calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, **call} for index, call in enumerate(calls)]}


def write_error(error: Mapping[str, Any]) -> dict[str, Any]:
    return {"error": dict(error)}


def _head(model: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": model}


def _end(body: Body, answer: PartialAnswer) -> dict[str, Any]:
    end = {
        "finish_reason": "tool_calls" if answer.parsed.calls else answer.finish,
        "logprobs": _logprobs(answer) if body.get("logprobs") else None,
    }
    return end if answer.stopped_at is None else end | {"stop_reason": answer.stopped_at}


def _usage(answer: PartialAnswer) -> dict[str, int]:
    prompt, completion = answer.prompt_tokens, answer.sampled_tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _logprobs(answer: PartialAnswer) -> dict[str, Any]:
    return {
        "content": [
            {"token": text, "logprob": logprob, "bytes": list(text.encode()), "top_logprobs": []}
            for text, logprob in answer.token_logprobs
        ]
    }


CHAT = Dialect("/v1/chat/completions", read_request, write_answer, stream_answer, write_error)
