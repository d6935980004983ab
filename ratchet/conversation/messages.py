"""Chat messages in one form, and when one that comes back is the one that was recorded. Pure.

The form is that of OpenAI's chat completions: `role`, `content` as text, and where there are any `reasoning_content`,
`tool_calls`, `tool_call_id`, `name`. Images and sounds are not taken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from ratchet.service.errors import PromptRefused

Message = dict[str, Any]
Sameness = Literal["same", "normalised"]

REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
"""Names a message's reasoning goes by; the first is the one kept."""
TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
"""A refusal was text, too."""
OTHER_FIELDS = ("tool_call_id", "name")
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


def canonical(message: Mapping[str, Any]) -> Message:
    """The message with only what a template may read, of several text parts one text.

    Raises PromptRefused for what is no chat message, or is not text.
    """
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise PromptRefused("a message has no role")
    kept: Message = {"role": "system" if role == "developer" else role, "content": _text(message.get("content"))}
    if len(message) == 2 and "content" in message:
        return kept  # as most are: a long history has many of them, and each turn all of it again
    reasoning = next((message[name] for name in REASONING_FIELDS if message.get(name)), None)
    if isinstance(reasoning, str):
        kept["reasoning_content"] = reasoning
    if calls := message.get("tool_calls"):
        if not isinstance(calls, Sequence):
            raise PromptRefused("the tool calls of a message are no list")
        kept["tool_calls"] = [_tool_call(call) for call in calls]
    return kept | {name: message[name] for name in OTHER_FIELDS if message.get(name)}


def characters_of(message: Message) -> int:
    """Count the text of a canonical message."""
    calls = message.get("tool_calls", ())
    texts = (message["content"], message.get("reasoning_content", ""), *(one["function"]["arguments"] for one in calls))
    return sum(map(len, texts))


def join_parts(parts: Iterable[str]) -> str:
    """The text of a content that comes in several parts: with line breaks between them, as vLLM and llama.cpp do it for
    templates that read text."""
    return "\n".join(parts)


def sameness(recorded: Message, given: Message) -> Sameness | None:
    """Compare the given message with the recorded one; both are canonical. None: they differ.

    `normalised`: an assistant's that differs only in outer white space, in how the JSON of its tool calls is written
    (where it is no object, in that it comes back as an empty one), or in that its reasoning was left out, wholly or but
    for its end: OpenAI's client for Node keeps only the last piece of reasoning that is streamed.
    """
    if recorded == given:
        return "same"
    if recorded["role"] != "assistant" or given["role"] != "assistant" or recorded.get("name") != given.get("name"):
        return None
    said = given["content"].strip()
    texts = (recorded["content"].strip(), _THOUGHT.sub("", recorded["content"]).strip())
    thought = given.get("reasoning_content", "").strip()
    kept_thought = recorded.get("reasoning_content", "").strip().endswith(thought)
    return "normalised" if said in texts and kept_thought and _same_calls(recorded, given) else None


def for_template(message: Message) -> Message:
    """Return the message as templates read it: arguments of tool calls as objects, reasoning under each of its
    names."""
    shown = dict(message)
    if (reasoning := message.get("reasoning_content")) is not None:
        shown |= dict.fromkeys(REASONING_FIELDS, reasoning)
    if calls := message.get("tool_calls"):
        shown["tool_calls"] = [
            call | {"function": call["function"] | {"arguments": _object(call["function"]["arguments"])}}
            for call in calls
        ]
    return shown


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, Sequence):
        raise PromptRefused(f"the content of a message is neither text nor a list of parts: {type(content).__name__}")
    parts = [part if isinstance(part, Mapping) else {"type": "text", "text": part} for part in content]
    if other := next((part for part in parts if part.get("type") not in TEXT_PARTS), None):
        raise PromptRefused(f"a part of a message is {other.get('type')!r}; this model reads text only")
    return join_parts(str(part.get("text") or part.get("refusal") or "") for part in parts)


def _tool_call(call: Any) -> Message:
    try:
        function = call["function"]
        arguments = function.get("arguments") or ""
        written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        named = {"name": str(function["name"]), "arguments": written}
    except (AttributeError, KeyError, TypeError) as error:
        raise PromptRefused("a tool call has no function with a name and arguments") from error
    return {"id": str(call.get("id") or ""), "type": "function", "function": named}


def _same_calls(recorded: Message, given: Message) -> bool:
    calls, others = recorded.get("tool_calls", ()), given.get("tool_calls", ())
    return len(calls) == len(others) and all(map(_same_call, calls, others))


def _same_call(recorded: Message, given: Message) -> bool:
    """Some dialects have only objects for arguments: what is none is told as an empty one, and so it comes back."""
    if (recorded["id"], recorded["function"]["name"]) != (given["id"], given["function"]["name"]):
        return False
    told, back = (_as_read(call["function"]["arguments"]) for call in (recorded, given))
    return bool(told == back) or (isinstance(told, str) and back == {})


def _as_read(arguments: str) -> Any:
    """Parse as `_object` does, with numbers as a client reads and writes them that has only doubles."""
    return _object(arguments, parse_int=float)


def _object(arguments: str, parse_int: Callable[[str], Any] = int) -> Any:
    """The JSON object that the arguments are; their text where they are none."""
    try:
        found = json.loads(arguments or "{}", parse_int=parse_int)
    except (ValueError, RecursionError):
        return arguments
    return found if isinstance(found, dict) else arguments
