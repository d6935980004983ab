"""A dialect: how a vendor's clients ask a model, and how they are answered. Knows no engine and no template.

The recorder and the public front read and write all three by these values. What a front does with a request, and whose
it is, is the front's own.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ratchet.dialects.body import OBJECT, SAMPLING, TEXT, Refused, find_field
from ratchet.dialects.kept_turns import Naming
from ratchet.grammars.grammar import FormatRefused
from ratchet.openai.honoured import wishes
from ratchet.openai.tools import read_format, read_required_call
from schemas.messages.response import FinishReason
from schemas.messages.task import AnswerFormat

TextKind = Literal["reasoning", "content"]
Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Parsed:
    """An answer's text, taken apart. `calls`: names, and arguments as JSON."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request as a call of a model, whatever the dialect."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    calls: bool = True
    """Tells whether calls of tools are looked for. The model is told of the tools in any case: without them its prompt
    would be another, and the rollout cut."""
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    retry: int = 0
    """The number of times that its client says it sent this before."""
    streamed: bool = True
    """Tells whether anybody is told of the answer before it is whole."""
    one_call: bool = False
    """Tells whether only the first call of an answer is passed on; all that was sampled is in the record."""
    is_large: bool = False
    """Tells whether it takes so long to tokenize that a thread has to do it."""
    wants: Mapping[str, float | str] = field(default_factory=dict)
    """Wishes for the sampling, which is the Work's all the same."""
    format: AnswerFormat | None = None
    """The form that the answer must have."""


class PartialAnswer(Protocol):
    """An answer as far as it is known; `Answer` of a rollout is one.

    `finish` is there once it is whole, `stopped_at` is the stop string that ended it.
    """

    @property
    def parsed(self) -> Parsed: ...

    @property
    def call_ids(self) -> Sequence[str]: ...

    @property
    def finish(self) -> FinishReason | None: ...

    @property
    def stopped_at(self) -> str | None: ...

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def sampled_tokens(self) -> int: ...

    @property
    def token_logprobs(self) -> Sequence[tuple[str, float]]:
        """Text and log-probability of each sampled token."""


Answers = AsyncGenerator[PartialAnswer, None]
Keep = Callable[[dict[str, Any]], dict[str, Any]]
"""Notes a whole answer that a later request may name, and returns it."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One of three: CHAT, RESPONSES and MESSAGES, each in a file of this folder."""

    path: str
    read_request: Callable[[Body, Mapping[str, str]], ModelRequest]
    """Reads body and headers. Raises Refused for what is not honoured."""
    write_answer: Callable[[str, Body, PartialAnswer], dict[str, Any]]
    """Return a whole answer as JSON, from the model's name, the request's body and the answer."""
    stream_answer: Callable[[str, Body, PartialAnswer, Answers, Keep], AsyncIterator[str]]
    """Yield events, from the same, the answers that follow, and what keeps the whole one: what each answer has more
    than the one before it, calls of tools whole at the end. A failure on the way is the last event."""
    write_error: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Return the body of an error, from `error` in OpenAI's shape."""
    error_event: str = ""
    """Line before the data of an error that is an event."""
    naming: Naming | None = None
    """The way in which a client refers to earlier answers; None where it sends all of it each time."""

    def stream_error(self, error: Mapping[str, Any]) -> str:
        """Return an error as the last event of a stream."""
        return f"{self.error_event}data: {json.dumps(self.write_error(error))}\n\n"


class Growth:
    """Finds what a stream of answers brings: `sent` holds the text that was told already, by its kind."""

    def __init__(self) -> None:
        self.sent: dict[TextKind, str] = {"reasoning": "", "content": ""}

    def find_new(self, answer: PartialAnswer) -> Iterator[tuple[TextKind, str]]:
        """Yield kind and text of what an answer has more than the one before it, reasoning first."""
        texts: tuple[tuple[TextKind, str], ...] = (
            ("reasoning", answer.parsed.reasoning),
            ("content", answer.parsed.content),
        )
        for kind, text in texts:
            if more := text[len(self.sent[kind]) :]:
                self.sent[kind] = text
                yield kind, more


def count_retries(headers: Mapping[str, str]) -> int:
    """Return how often a client's SDK sent a request before, by its own count.

    Those of OpenAI and Anthropic say no more of it: unless they are told to, they send no Idempotency-Key.
    """
    count = headers.get("x-stainless-retry-count", "0")
    return int(count) if count.isdecimal() and len(count) < 10 else 0


def read_wishes(body: Mapping[str, Any], **more: Any) -> dict[str, float | str]:
    """Return what a request would have of the sampling.

    `more`: values of a chat completion's fields that have other names in the dialect."""
    given = {name: body[name] for name in SAMPLING if body.get(name) is not None} | wishes({**body, **more})
    return {name: value if isinstance(value, str) else float(value) for name, value in given.items()}


def read_form(body: Mapping[str, Any], tools: Sequence[Mapping[str, Any]], name: str) -> AnswerFormat | None:
    """Return the form that the answer must have. `name`: of the field that has the format of text. Raises Refused."""
    where = "tool_choice"
    try:
        if (required := read_required_call(body.get(where), tools)) is not None:
            return required
        where = name
        return read_format(find_field(body, name))
    except FormatRefused as error:
        raise Refused(400, f"{where}: {error}", param=where) from None


def read_function(given: Mapping[str, Any], parameters: str = "parameters") -> dict[str, Any]:
    """Return a function that is offered, as a chat completion has it. `parameters`: the dialect's name for them.

    Raises Refused.
    """
    shapes = {"name": TEXT, "description": TEXT, parameters: OBJECT}
    told = {name: given[name] for name in shapes if given.get(name) is not None}
    for name, value in told.items():
        shape, fits = shapes[name]
        if not fits(value):
            raise Refused(400, f"tools: the {name} of a function must be {shape}", param="tools")
    if not told.get("name"):
        raise Refused(400, "tools: a function has no name", param="tools")
    names = {parameters: "parameters"}
    return {"type": "function", "function": {names.get(name, name): value for name, value in told.items()}}


def wants_one_call(body: Mapping[str, Any]) -> bool:
    """Tell whether an answer may have one call at most, in any dialect's words."""
    choice = body.get("tool_choice")
    not_parallel = isinstance(choice, Mapping) and choice.get("disable_parallel_tool_use") is True
    return body.get("parallel_tool_calls") is False or not_parallel
