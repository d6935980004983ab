"""OpenAI's responses: requests read as calls of a model, and answers written in their shapes, streamed or whole.

A request is read with its whole history: `kept_turns.py` puts in what a client only names. What would need more of
the server's memory is refused with a sentence.

Items of one answer (reasoning, text, function calls) are one message of the assistant. Text and function tools only.
"""

from __future__ import annotations

import itertools
import json
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from typing import Any

from ratchet.dialects.body import FAILURES, Refused, find_field, refusal_of, require_known_roles
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
from ratchet.dialects.kept_turns import Naming
from ratchet.openai.tools import CHOICES, UNKNOWN_CHOICE, choice_of

STATELESS = (
    ("conversation", "no conversation is kept: send the whole history as `input`"),
    ("prompt", "no prompts are kept: send `instructions` and `input`"),
    ("background", "a response is answered while its client waits: leave `background` out"),
    ("context_management", "a history is taken as it is sent, never compacted: leave `context_management` out"),
    ("top_logprobs", "only the log-probability of the sampled token is known, and responses have no place for it"),
)
"""Fields that need more than this request, if they are set to anything that is true."""
NOT_KEPT = "previous_response_not_found"
"""OpenAI's code for it."""
INCLUDED = ("reasoning.encrypted_content",)
"""Names that a client may ask to have included, and gets nothing for: reasoning is not encrypted."""


def read_request(body: Body, headers: Mapping[str, str]) -> ModelRequest:
    """Raises Refused for what is not honoured."""
    for name, why in STATELESS:
        if body.get(name):
            raise Refused(400, f"{name}: {why}", param=name)
    if body.get("truncation") not in (None, "disabled"):
        raise Refused(400, "truncation: a history is never cut here, it must be disabled", param="truncation")
    if other := [name for name in body.get("include") or () if name not in INCLUDED]:
        raise Refused(400, f"include: {other[0]!r} is not known here", param="include")
    choice = choice_of(body.get("tool_choice"))
    if choice not in CHOICES:
        raise Refused(400, UNKNOWN_CHOICE, param="tool_choice")
    tools = [_tool(tool) for tool in body.get("tools") or ()]
    instructions = body.get("instructions")
    effort, verbosity = find_field(body, "reasoning.effort"), find_field(body, "text.verbosity")
    system = [{"role": "system", "content": instructions}] if instructions else []
    return ModelRequest(
        messages=[*system, *_messages(body.get("input"))],
        tools=tools,
        calls=choice != "none",
        max_tokens=body.get("max_output_tokens"),
        retry=count_retries(headers),
        streamed=bool(body.get("stream")),
        one_call=wants_one_call(body),
        wants=read_wishes(body, reasoning_effort=effort, verbosity=verbosity),
        format=read_form(body, tools, "text.format"),
    )


def _head(model: str, body: Body) -> dict[str, Any]:
    """Return the response before there is anything in it."""
    return {
        "id": f"resp_{secrets.token_hex(16)}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "model": model,
        "output": [],
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": body.get("metadata") or {},
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "previous_response_id": body.get("previous_response_id"),
        "store": body.get("store") is not False,
        "temperature": None,
        "text": {"format": find_field(body, "text.format") or {"type": "text"}},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "top_p": None,
        "truncation": "disabled",
        "usage": None,
    }


def write_answer(model: str, body: Body, answer: PartialAnswer) -> dict[str, Any]:
    return _whole(_head(model, body), answer, {})


def _whole(head: Mapping[str, Any], answer: PartialAnswer, ids: Mapping[str, str]) -> dict[str, Any]:
    """`ids`: of items that were streamed, by their kinds."""
    cut = answer.finish == "length"
    status = "incomplete" if cut else "completed"
    output = [_item(kind, value, status, ids.get(kind)) for kind, value in _parts(answer)]
    prompt, sampled = answer.prompt_tokens, answer.sampled_tokens
    usage = {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": sampled,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + sampled,
    }
    details = {"reason": "max_output_tokens"} if cut else None
    return dict(head) | {"status": status, "output": output, "incomplete_details": details, "usage": usage}


async def stream_answer(
    model: str, body: Body, first: PartialAnswer, answers: Answers, keep: Keep
) -> AsyncIterator[str]:
    head = _head(model, body)
    numbers = itertools.count()
    ids = {kind: f"{prefix}_{secrets.token_hex(16)}" for kind, prefix in PREFIXES.items()}
    growth = Growth()
    index, at = -1, ""

    def event(kind: str, **what: Any) -> str:
        told = {"type": kind, "sequence_number": next(numbers)} | what
        return f"event: {kind}\ndata: {json.dumps(told)}\n\n"

    def place(item: str) -> dict[str, Any]:
        return {"item_id": ids[item], "output_index": index, "content_index": 0}

    def open_item(item: str) -> Iterator[str]:
        nonlocal index, at
        yield from close_item("completed")
        index, at = index + 1, item
        empty = _item(item, "", "in_progress", ids[item]) | {"content": []}
        yield event("response.output_item.added", output_index=index, item=empty)
        yield event("response.content_part.added", part=_part(item, ""), **place(item))

    def close_item(status: str) -> Iterator[str]:
        if at:
            text = growth.sent[TEXTS[at]]
            more = LOGPROBS if at == "message" else {}
            yield event(f"response.{NAMES[at]}.done", text=text, **place(at), **more)
            yield event("response.content_part.done", part=_part(at, text), **place(at))
            yield event("response.output_item.done", output_index=index, item=_item(at, text, status, ids[at]))

    def stream_new(answer: PartialAnswer) -> Iterator[str]:
        for kind, delta in growth.find_new(answer):
            item = ITEMS[kind]
            if at != item:
                yield from open_item(item)
            more = LOGPROBS if item == "message" else {}
            yield event(f"response.{NAMES[item]}.delta", delta=delta, **place(item), **more)

    async with aclosing(answers):
        yield event("response.created", response=head)
        yield event("response.in_progress", response=head)
        answer = first
        try:
            for line in stream_new(first):
                yield line
            async for answer in answers:
                for line in stream_new(answer):
                    yield line
        except FAILURES as error:
            said = {"code": "server_error", "message": refusal_of(error).error["message"]}
            yield event("response.failed", response=dict(head) | {"status": "failed", "error": said})
            return
        if not answer.parsed.calls and at != "message":
            for line in open_item("message"):
                yield line
        whole = _whole(head, answer, ids)
        keep(whole)
        for line in close_item(whole["status"]):
            yield line
        for item in whole["output"]:
            if item["type"] == "function_call":
                index += 1
                where = {"item_id": item["id"], "output_index": index}
                begun_item = item | {"arguments": "", "status": "in_progress"}
                yield event("response.output_item.added", output_index=index, item=begun_item)
                yield event("response.function_call_arguments.delta", delta=item["arguments"], **where)
                named = {"arguments": item["arguments"], "name": item["name"]}
                yield event("response.function_call_arguments.done", **named, **where)
                yield event("response.output_item.done", output_index=index, item=item)
        yield event(f"response.{whole['status']}", response=whole)


ITEMS: Mapping[TextKind, str] = {"reasoning": "reasoning", "content": "message"}
TEXTS: Mapping[str, TextKind] = {item: kind for kind, item in ITEMS.items()}
"""Items that hold the kinds of text, and the other way round."""
PREFIXES = {"reasoning": "rs", "message": "msg"}
"""Prefixes of the ids of items."""
NAMES = {"reasoning": "reasoning_text", "message": "output_text"}
"""Kinds of the text in an item."""
LOGPROBS: dict[str, Any] = {"logprobs": []}
ANNOTATIONS: dict[str, Any] = {"annotations": []}
ROLE: dict[str, Any] = {"role": "assistant"}
SUMMARY: dict[str, Any] = {"summary": []}
"""Fields that items and their parts must have, though there is nothing to tell."""


def _messages(given: Any) -> list[dict[str, Any]]:
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given or not all(isinstance(item, dict) for item in given):
        raise Refused(400, "input must be a text or a list of items, one at least", param="input")
    messages: list[dict[str, Any]] = []
    for item in given:
        _take(item, messages)
    return require_known_roles(messages)


def _take(item: Mapping[str, Any], messages: list[dict[str, Any]]) -> None:
    """An item of the assistant belongs to the message it goes on with, if the last is such a one."""
    kind = item.get("type") or "message"
    if kind == "message" and item.get("role") != "assistant":
        messages.append({"role": item.get("role"), "content": item.get("content")})
    elif kind == "function_call_output":
        messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")})
    elif kind == "message":
        if not _goes_on(messages, "content", "tool_calls"):
            messages.append({"role": "assistant"})
        messages[-1]["content"] = item.get("content")
    elif kind == "reasoning":
        if not _goes_on(messages, "content", "tool_calls", "reasoning_content"):
            messages.append({"role": "assistant"})
        messages[-1]["reasoning_content"] = _join_parts(item.get("content") or ())
    elif kind == "function_call":
        if not _goes_on(messages):
            messages.append({"role": "assistant"})
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        messages[-1]["tool_calls"] = [*messages[-1].get("tool_calls", ()), call]
    else:
        raise Refused(400, f"input: an item is {kind!r}; messages and function calls are taken", param="input")


def _goes_on(messages: list[dict[str, Any]], *without: str) -> bool:
    """Tell whether the last message is the assistant's, and has none of these yet."""
    return bool(messages) and messages[-1]["role"] == "assistant" and not any(messages[-1].get(one) for one in without)


def _join_parts(parts: Any) -> str:
    if not isinstance(parts, list | tuple):
        raise Refused(400, "input: the content of an item of reasoning is a list", param="input")
    return "".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    if tool.get("type") != "function":
        raise Refused(
            400, f"tools: {tool.get('type')!r} is run by no one here: function tools are taken", param="tools"
        )
    return read_function(tool)


def _parts(answer: PartialAnswer) -> Iterator[tuple[str, Any]]:
    """Yield the parts of an answer and their kinds, in order. One without calls is a message, also an empty one."""
    parsed = answer.parsed
    if parsed.reasoning:
        yield "reasoning", parsed.reasoning
    if parsed.content or not parsed.calls:
        yield "message", parsed.content
    for name_of, call in zip(answer.call_ids, parsed.calls, strict=True):
        yield "function_call", (name_of, *call)


def _item(kind: str, value: Any, status: str, name: str | None) -> dict[str, Any]:
    if kind == "function_call":
        call_id, function, arguments = value
        named = {"name": function, "arguments": arguments}
        return {"id": f"fc_{call_id}", "type": kind, "call_id": call_id, "status": status} | named
    item = {"id": name or f"{PREFIXES[kind]}_{secrets.token_hex(16)}", "type": kind, "status": status}
    item |= ROLE if kind == "message" else SUMMARY
    return item | {"content": [_part(kind, value)]}


def _part(kind: str, text: str) -> dict[str, Any]:
    more = ANNOTATIONS | LOGPROBS if kind == "message" else {}
    return {"type": NAMES[kind], "text": text} | more


def write_error(error: Mapping[str, Any]) -> dict[str, Any]:
    """Return OpenAI's, which names the field as responses do."""
    if error["param"] == "messages":
        error = {**error, "param": "input", "message": f"input: {error['message'].removeprefix('messages: ')}"}
    return {"error": dict(error)}


def _not_kept() -> Refused:
    why = "this response is not kept here, or not any more: send the whole history as `input`"
    return Refused(400, why, param="previous_response_id", code=NOT_KEPT)


NAMING = Naming(
    items="input",
    previous=lambda body: body.get("previous_response_id"),
    is_kept=lambda body: body.get("store") is not False,
    answer_items=lambda told: told["output"],
    not_kept=_not_kept,
)
RESPONSES = Dialect("/v1/responses", read_request, write_answer, stream_answer, write_error, naming=NAMING)
