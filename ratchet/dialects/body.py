"""The body of a request, before its dialect reads it: JSON whose fields have the shapes that all of them rely on.

A dialect looks at what is in a message itself. Fields that nobody reads may be anything.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ratchet.openai.transport import ContextTooLong, ModelServerError, error_object
from ratchet.service.errors import EngineError, PromptRefused, PromptTooLong

FAILURES = (PromptRefused, ModelServerError, EngineError)
"""Errors that are answered, by `refusal_of`."""
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
SAMPLING = ("temperature", "top_p")
"""The Work's sampling; what a client asks for besides is in vain."""
NUMBERS = (*SAMPLING, "presence_penalty", "frequency_penalty")
ROLES = ("system", "developer", "user", "assistant", "tool")
Shape = tuple[str, Callable[[Any], bool]]


class Refused(Exception):
    """A client gets no answer: the status, and why as `error` in OpenAI's shape."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.error = error_object(status, message, param=param, code=code)


def refusal_of(error: Exception) -> Refused:
    """Give one of FAILURES its status."""
    if isinstance(error, ContextTooLong | PromptTooLong):
        return Refused(400, str(error), param="messages", code="context_length_exceeded")
    return Refused(400, str(error), param="messages") if isinstance(error, PromptRefused) else Refused(503, str(error))


def _is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_whole(value: Any) -> bool:
    return _is_number(value) and value == int(value)


OBJECT: Shape = ("an object", lambda value: isinstance(value, dict))
OBJECTS: Shape = ("a list of objects", lambda value: _is_list_of(value, dict))
TEXT: Shape = ("a text", lambda value: isinstance(value, str))
TEXTS: Shape = ("a list of texts", lambda value: _is_list_of(value, str))
NUMBER: Shape = ("a number", _is_number)
FLAG: Shape = ("true or false", lambda value: isinstance(value, bool))
WHOLE: Shape = ("a whole number", _is_whole)
COUNT: Shape = ("a positive number", lambda value: _is_whole(value) and value > 0)
SHAPES: Mapping[str, Shape] = (
    {
        "tools": OBJECTS,
        "stop": ("a text or a list of texts", lambda value: isinstance(value, str) or _is_list_of(value, str)),
        "stop_sequences": TEXTS,
        "include": TEXTS,
        "stream_options": OBJECT,
        "stream_options.include_usage": FLAG,
        "response_format": OBJECT,
        "text": OBJECT,
        "text.format": OBJECT,
        "output_config": OBJECT,
        "system": ("a text or a list of blocks", lambda value: isinstance(value, str) or _is_list_of(value, dict)),
        "instructions": TEXT,
        "stream": FLAG,
        "logprobs": FLAG,
        "parallel_tool_calls": FLAG,
        "logit_bias": OBJECT,
        "reasoning_effort": TEXT,
        "reasoning.effort": TEXT,
        "output_config.effort": TEXT,
        "verbosity": TEXT,
        "text.verbosity": TEXT,
    }
    | dict.fromkeys(LIMITS, COUNT)
    | dict.fromkeys(NUMBERS, NUMBER)
    | dict.fromkeys(("top_k", "seed"), WHOLE)
)
"""Types by the names of fields; those that are null or absent have any."""


def read_body(raw: bytes, most_values: int | None = None) -> dict[str, Any]:
    """Parse a body and check its shapes. Raises Refused, also for one with more than `most_values` values."""
    if most_values is not None and sum(map(raw.count, b",[{")) > most_values:
        raise Refused(400, f"the body has more than {most_values:,} values", code="context_length_exceeded")
    try:
        body = json.loads(raw, parse_constant=_no_number)
        if b"\\ud" in raw.lower():  # half of a pair is no character: no tokenizer takes it, and no answer can quote it
            json.dumps(body, ensure_ascii=False).encode()
    except UnicodeError:
        raise Refused(400, "the body has half of a surrogate pair in it, or is not UTF-8: send text") from None
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise Refused(400, "the body is not a JSON object")
    for name, (shape, fits) in SHAPES.items():
        value = find_field(body, name)
        if value is not None and not fits(value):
            raise Refused(400, f"{name} must be {shape}", param=name)
    return body | {name: int(body[name]) for name in LIMITS if body.get(name) is not None}


def require_known_roles(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages. Raises Refused for a role that templates would leave out, or take for the user's."""
    for role in (message.get("role") for message in messages):
        if role not in ROLES:
            raise Refused(400, f"a role is one of {', '.join(ROLES)}, not {role!r}", param="messages")
    return messages


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def find_field(body: Mapping[str, Any], name: str) -> Any:
    """Return the field of that name, with dots between the names of nested objects; None where there is none."""
    value: Any = body
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
