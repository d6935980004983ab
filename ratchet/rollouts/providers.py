"""Models of other providers, asked for text: OpenAI's chat completions and Anthropic's messages, at any URL of theirs.

A request is that of a client in whatever dialect, as chat completions have it. Answers come whole. Keys are sent to the
provider and are in no error. LiteLLM is not used: the recorder reads these dialects already, so each is one small
translation more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import msgspec

from ratchet.dialects.body import Refused
from ratchet.dialects.dialect import ModelRequest
from ratchet.openai.client import OpenAiClient, http_client
from ratchet.openai.transport import ContextTooLong, ModelServerError, RequestRefused, ServerUnavailable
from schemas.messages.response import FinishReason

Provider = Literal["openai", "anthropic"]
URLS: Mapping[Provider, str] = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com/v1"}
ANTHROPIC_VERSION = "2023-06-01"
RETRIES = 4
"""Further tries of a call whose failure may pass, such as one of too many (429)."""
TIMEOUT_S = 600.0


class Reply(msgspec.Struct, frozen=True):
    """A whole answer. `calls`: names of tools, and arguments as JSON."""

    content: str
    reasoning: str
    calls: list[tuple[str, str]]
    finish: FinishReason
    prompt_tokens: int
    sampled_tokens: int


@dataclass(frozen=True, slots=True)
class ForeignModel:
    """A model of a provider, by the name that the provider knows. `prices`: its name in the file of prices."""

    provider: Provider
    model: str
    url: str
    key: str | None = None
    prices: str | None = None

    @property
    def name(self) -> str:
        return f"{self.provider}:{self.model}"


class ForeignClient(OpenAiClient):
    """Asks one model. Calls may be made concurrently."""

    def __init__(self, of: ForeignModel) -> None:
        is_openai = of.provider == "openai"
        http = http_client(of.url.rstrip("/"), of.key if is_openai else None)
        if not is_openai:
            http.headers.update({"anthropic-version": ANTHROPIC_VERSION} | ({"x-api-key": of.key} if of.key else {}))
        super().__init__(http, setting="its url in RATCHET_PROFILES", timeout_s=TIMEOUT_S, retries=RETRIES)
        self.of = of

    async def ask(self, asked: ModelRequest, most: int) -> Reply:
        """Return its answer, of at most so many tokens. Raises Refused, ModelServerError."""
        is_openai = self.of.provider == "openai"
        path, write, read = (
            ("/chat/completions", openai_body, read_openai)
            if is_openai
            else ("/messages", anthropic_body, read_anthropic)
        )
        try:
            reply = await self._generate(path, {"model": self.of.model, **write(asked, most)})
        except RequestRefused as error:
            is_too_long = isinstance(error, ContextTooLong)
            code = "context_length_exceeded" if is_too_long else None
            raise Refused(400, self._without_key(str(error)), code=code) from None
        except ModelServerError as error:
            raise type(error)(self._without_key(str(error))) from None
        try:
            return read(reply.json())
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            raise ServerUnavailable(f"{reply.url} answered with no {self.of.provider} answer") from None

    def _without_key(self, says: str) -> str:
        """Return what a server says without our key, which some of them repeat."""
        return says.replace(self.of.key, "…") if self.of.key else says


def openai_body(asked: ModelRequest, most: int) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": list(asked.messages), "max_tokens": most}
    if asked.tools:
        body |= {"tools": list(asked.tools), "tool_choice": _choice(asked, "none", "auto", "required")}
        if asked.one_call:
            body["parallel_tool_calls"] = False
    if asked.stop:
        body["stop"] = list(asked.stop)
    if asked.format is not None and asked.format.type == "json_object":
        body["response_format"] = {"type": "json_object"}
    elif asked.format is not None and asked.format.type == "json_schema":
        schema = {"name": "answer", "strict": True, "schema": asked.format.json_schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def _choice(asked: ModelRequest, none: str, auto: str, required: str) -> str:
    if not asked.calls:
        return none
    return required if asked.format is not None and asked.format.type == "tool_call" else auto


def read_openai(body: Mapping[str, Any]) -> Reply:
    choice, usage = body["choices"][0], body.get("usage") or {}
    message = choice["message"]
    calls = [
        (str(one["function"]["name"]), str(one["function"]["arguments"])) for one in message.get("tool_calls") or ()
    ]
    return Reply(
        content=message.get("content") or message.get("refusal") or "",
        reasoning=message.get("reasoning_content") or "",
        calls=calls,
        finish="length" if choice.get("finish_reason") == "length" else "stop",
        prompt_tokens=int(usage.get("prompt_tokens") or 0),
        sampled_tokens=int(usage.get("completion_tokens") or 0),
    )


def anthropic_body(asked: ModelRequest, most: int) -> dict[str, Any]:
    """Raises Refused for a form that Anthropic's models can't be held to."""
    system = "\n\n".join(_text(one) for one in asked.messages if one["role"] in ("system", "developer"))
    turns = (_anthropic_turn(one) for one in asked.messages if one["role"] not in ("system", "developer"))
    grouped = groupby(turns, key=lambda turn: turn[0])
    messages = [{"role": role, "content": [part for _, parts in its for part in parts]} for role, its in grouped]
    body: dict[str, Any] = {"messages": messages, "max_tokens": most}
    if system:
        body["system"] = system
    if asked.tools:
        functions = [one["function"] for one in asked.tools]
        body["tools"] = [
            {
                "name": one["name"],
                "description": one.get("description", ""),
                "input_schema": one.get("parameters") or {"type": "object"},
            }
            for one in functions
        ]
        choice: dict[str, Any] = {"type": _choice(asked, "none", "auto", "any")}
        body["tool_choice"] = choice | ({"disable_parallel_tool_use": True} if asked.one_call and asked.calls else {})
    if asked.stop:
        body["stop_sequences"] = list(asked.stop)
    if asked.format is not None and asked.format.type == "json_schema":
        body["output_config"] = {"format": {"type": "json_schema", "schema": asked.format.json_schema}}
    elif asked.format is not None and asked.format.type == "json_object":
        raise Refused(
            400, "a model of Anthropic can be held to a JSON Schema, not to any JSON", param="response_format"
        )
    return body


def _anthropic_turn(message: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """Return a message's role and its parts. What a tool brought is a part of a user's turn."""
    if message["role"] == "tool":
        result = {"type": "tool_result", "tool_use_id": message.get("tool_call_id") or "", "content": _text(message)}
        return "user", [result]
    return str(message["role"]), list(_anthropic_parts(message))


def _anthropic_parts(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if text := _text(message):
        yield {"type": "text", "text": text}
    for call in message.get("tool_calls") or ():
        function = call["function"]
        try:
            given = json.loads(function.get("arguments") or "{}")
        except ValueError:
            given = {}
        yield {"type": "tool_use", "id": call["id"], "name": function["name"], "input": given}


def _text(message: Mapping[str, Any]) -> str:
    """Return the text of a message, whose content may be parts."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))


def read_anthropic(body: Mapping[str, Any]) -> Reply:
    parts: Sequence[Mapping[str, Any]] = body["content"]
    usage = body.get("usage") or {}
    cached = (usage.get(f"cache_{name}_input_tokens") or 0 for name in ("creation", "read"))
    return Reply(
        content="".join(part["text"] for part in parts if part["type"] == "text"),
        reasoning="".join(part["thinking"] for part in parts if part["type"] == "thinking"),
        calls=[(part["name"], json.dumps(part["input"])) for part in parts if part["type"] == "tool_use"],
        finish="length" if body.get("stop_reason") == "max_tokens" else "stop",
        prompt_tokens=int(usage.get("input_tokens") or 0) + sum(cached),
        sampled_tokens=int(usage.get("output_tokens") or 0),
    )
