"""Anthropic's messages: requests read as calls of a model, and answers written in their shapes, streamed or whole.

Text, tool uses and results, thinking are taken; images and documents are not. Thinking has no signature.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from typing import Any

from ratchet.conversation.messages import join_parts
from ratchet.dialects.body import FAILURES, Refused, find_field, refusal_of
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
from ratchet.openai.honoured import stop_strings
from ratchet.openai.tools import CHOICES, UNKNOWN_CHOICE, choice_of
from ratchet.openai.transport import anthropic_details

VERSION = "anthropic-version"
"""Its clients send this header."""
UNTHREADED = "thread_unsupported_request"
"""The code at which clients send the whole history, with this request and every later one."""
NOT_KEPT = "thread_not_found"
"""The code at which clients send the whole history once, and begin a thread with it."""
TOO_LONG = "context_length_exceeded"
COUNTS = re.compile(r"maximum context length is (?P<most>\d+) tokens.* resulted in (?P<tokens>\d+) tokens", re.DOTALL)
"""The counts in OpenAI's sentence. Anthropic's clients know a prompt that is too long by how the sentence begins."""
NOT_TAKEN = {
    "mcp_servers": "no server's tools are called here: offer them as tools, and call them yourself",
    "container": "nothing is run here",
}
"""Fields that ask something else of a server, if they are set to anything that is true."""


def read_request(body: Body, headers: Mapping[str, str]) -> ModelRequest:
    """Raises Refused for what is not honoured."""
    if body.get("max_tokens") is None:
        raise Refused(400, "max_tokens: a positive number is needed")
    return read_prompt(body, headers)


def read_prompt(body: Body, headers: Mapping[str, str]) -> ModelRequest:
    """Read a request whose prompt alone is wanted, so it may lack `max_tokens`. Raises Refused."""
    if body.get("thread"):
        raise Refused(400, "thread: it is neither created nor continued, send all of `messages`", code=UNTHREADED)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        raise Refused(400, "messages: a list of messages is needed, one at least")
    if messages[-1].get("role") == "assistant":
        raise Refused(400, "messages: the last turn is the assistant's, and no answer goes on from words of others")
    for name, why in NOT_TAKEN.items():
        if body.get(name):
            raise Refused(400, f"{name}: {why}")
    choice = choice_of(body.get("tool_choice"))
    if choice not in CHOICES:
        raise Refused(400, f"tool_choice: {UNKNOWN_CHOICE}")
    system = [{"role": "system", "content": _text(body["system"])}] if body.get("system") else []
    thinking = body.get("thinking") or None
    if thinking is not None and not isinstance(thinking, dict):
        raise Refused(400, "thinking: an object is needed")
    if find_field(body, "thinking.type") == "disabled":
        thinking = None
    tools = [_tool(tool) for tool in body.get("tools") or ()]
    return ModelRequest(
        messages=[*system, *(one for message in messages for one in _messages(message))],
        tools=tools,
        calls=choice != "none",
        max_tokens=body.get("max_tokens"),
        stop=_stop_sequences(body),
        retry=count_retries(headers),
        streamed=bool(body.get("stream")),
        one_call=wants_one_call(body),
        wants=read_wishes(body, reasoning_effort=find_field(body, "output_config.effort") or thinking),
        format=read_form(body, tools, "output_format" if body.get("output_format") else "output_config.format"),
    )


def _stop_sequences(body: Mapping[str, Any]) -> tuple[str, ...]:
    try:
        return stop_strings(body.get("stop_sequences"), "stop_sequences")
    except ValueError as error:
        raise Refused(400, str(error)) from None


def write_model(name: str) -> dict[str, Any]:
    return {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}


def write_models(*names: str) -> dict[str, Any]:
    """Return a list with all on one page."""
    data = [write_model(name) for name in names]
    return {"data": data, "has_more": False, "first_id": names[0], "last_id": names[-1]}


def write_answer(model: str, body: Body, answer: PartialAnswer) -> dict[str, Any]:
    usage = {"input_tokens": answer.prompt_tokens, "output_tokens": answer.sampled_tokens}
    return _head(model) | {"content": _content(answer), "usage": usage} | _end(answer)


async def stream_answer(
    model: str, body: Body, first: PartialAnswer, answers: Answers, keep: Keep
) -> AsyncIterator[str]:
    growth = Growth()
    index, at = -1, ""

    def stream_new(answer: PartialAnswer) -> Iterator[str]:
        nonlocal index, at
        for kind, text in growth.find_new(answer):
            block = BLOCKS[kind]
            if at != block:
                yield from stop_block()
                index, at = index + 1, block
                yield _event("content_block_start", index=index, content_block=_empty_block(block))
            yield _event("content_block_delta", index=index, delta={"type": f"{block}_delta", block: text})

    def stop_block() -> Iterator[str]:
        if index >= 0:
            yield _event("content_block_stop", index=index)

    async with aclosing(answers):
        usage = {"input_tokens": first.prompt_tokens, "output_tokens": 0}
        head = _head(model)
        begun: dict[str, Any] = {"content": [], "stop_reason": None, "usage": usage}
        yield _event("message_start", message=head | begun)
        answer = first
        try:
            for event in stream_new(first):
                yield event
            async for answer in answers:
                for event in stream_new(answer):
                    yield event
        except FAILURES as error:
            yield _event("error", error=write_error(refusal_of(error).error)["error"])
            return
        for event in stop_block():
            yield event
        keep(head | {"content": _content(answer)})
        for kind, whole in _blocks(answer):
            if kind == "tool_use":
                index += 1
                empty = _empty_block(kind) | whole | {"input": {}}
                yield _event("content_block_start", index=index, content_block=empty)
                given = {"type": "input_json_delta", "partial_json": json.dumps(whole["input"], ensure_ascii=False)}
                yield _event("content_block_delta", index=index, delta=given)
                yield _event("content_block_stop", index=index)
        yield _event("message_delta", delta=_end(answer), usage={"output_tokens": answer.sampled_tokens})
        yield _event("message_stop")


BLOCKS: Mapping[TextKind, str] = {"reasoning": "thinking", "content": "text"}
"""Blocks that hold the kinds of text."""


def write_error(error: Mapping[str, Any]) -> dict[str, Any]:
    told = error["message"]
    if error["code"] == TOO_LONG:
        counts = COUNTS.search(told)
        told = (
            f"prompt is too long: {counts['tokens']} tokens > {counts['most']} maximum"
            if counts
            else f"prompt is too long: {told}"
        )
    return {"type": "error", "error": {"type": error["type"], "message": told} | anthropic_details(error["code"])}


def _messages(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A turn may hold results of tools before what the user says: messages of their own here."""
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant"):
        raise Refused(400, f"messages: a role is user or assistant, not {role!r}")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else _list_of_blocks(content)
    for block in blocks:
        if block.get("type") == "tool_result":
            yield {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": _text(block.get("content"))}
    rest = [block for block in blocks if block.get("type") != "tool_result"]
    calls = [_call(block) for block in rest if block.get("type") == "tool_use"]
    thought = "".join(str(block.get("thinking", "")) for block in rest if block.get("type") == "thinking")
    said = _text([block for block in rest if block.get("type") not in ("tool_use", "thinking", "redacted_thinking")])
    if rest or not blocks:  # an answer of no tokens but the last is a turn, too
        yield {"role": role, "content": said, "reasoning_content": thought or None, "tool_calls": calls or None}


def _text(content: Any) -> str:
    if isinstance(content, str) or content is None:
        return content or ""
    if other := next((part.get("type") for part in _list_of_blocks(content) if part.get("type") != "text"), None):
        raise Refused(400, f"messages: a block is {other!r}; this model reads text only")
    return join_parts(str(part.get("text", "")) for part in content)


def _list_of_blocks(content: Any) -> list[Mapping[str, Any]]:
    """Raises Refused for what is no list of blocks."""
    if not isinstance(content or [], list) or not all(isinstance(block, Mapping) for block in content or ()):
        raise Refused(400, "messages: a content is a text or a list of blocks")
    return list(content or ())


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
    function = {"name": block.get("name", ""), "arguments": arguments}
    return {"id": block.get("id", ""), "type": "function", "function": function}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    if (kind := tool.get("type") or "custom") != "custom":
        raise Refused(400, f"tools: {kind!r} is run by no one here: tools with an input_schema are taken")
    return read_function(tool, "input_schema")


def _blocks(answer: PartialAnswer) -> Iterator[tuple[str, dict[str, Any]]]:
    if answer.parsed.reasoning:
        yield "thinking", {"thinking": answer.parsed.reasoning}
    if answer.parsed.content:
        yield "text", {"text": answer.parsed.content}
    for name_of, (name, arguments) in zip(answer.call_ids, answer.parsed.calls, strict=True):
        yield "tool_use", {"id": name_of, "name": name, "input": _object(arguments)}


def _content(answer: PartialAnswer) -> list[dict[str, Any]]:
    return [_empty_block(kind) | whole for kind, whole in _blocks(answer)]


def _empty_block(kind: str) -> dict[str, Any]:
    empty: dict[str, dict[str, Any]] = {
        "thinking": {"thinking": "", "signature": ""},
        "text": {"text": ""},
        "tool_use": {},
    }
    return {"type": kind} | empty[kind]


def _object(arguments: str) -> Any:
    try:
        found = json.loads(arguments)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _head(model: str) -> dict[str, Any]:
    return {
        "id": f"msg_{secrets.token_hex(12)}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "stop_sequence": None,
    }


def _end(answer: PartialAnswer) -> dict[str, Any]:
    if answer.parsed.calls:
        return {"stop_reason": "tool_use", "stop_sequence": None}
    if answer.stopped_at is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": answer.stopped_at}
    return {"stop_reason": "max_tokens" if answer.finish == "length" else "end_turn", "stop_sequence": None}


def _event(kind: str, **what: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind} | what)}\n\n"


def _previous(body: Body) -> Any:
    """Return the message that a thread is continued from; None where it is created, or none is asked for."""
    return find_field(body, "thread.previous_message_id") if find_field(body, "thread.type") == "continue" else None


def _not_kept() -> Refused:
    why = "thread: what went before is not kept here, or not any more: send all of `messages` in a new thread"
    return Refused(404, why, code=NOT_KEPT)


NAMING = Naming(
    items="messages",
    previous=_previous,
    is_kept=lambda body: find_field(body, "thread.type") == "create" or bool(_previous(body)),
    answer_items=lambda told: [{"role": "assistant", "content": told["content"]}],
    not_kept=_not_kept,
    shared=("system", "tools"),
    own=("thread",),
)
MESSAGES = Dialect(
    "/v1/messages", read_request, write_answer, stream_answer, write_error, error_event="event: error\n", naming=NAMING
)
