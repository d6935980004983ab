"""What the dialects share: a request as a call of a model, and an answer that is told. Knows no engine and no template.

The recorder and the public front read and write Anthropic's messages and OpenAI's responses by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ratchet.openai.honoured import wishes
from ratchet.openai.tools import REQUIRED, choice_of
from ratchet.recorder.body import OBJECT, SAMPLING, TEXT
from ratchet.recorder.parsing import Parsed
from ratchet.recorder.refused import Refused
from schemas.messages.response import FinishReason

TextKind = Literal["reasoning", "content"]


@dataclass(frozen=True, slots=True)
class Asked:
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    calls: bool = True
    """Whether calls of tools are looked for. The model is told of the tools all the same: without them its prompt would
    be another, and the rollout cut."""
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    retry: int = 0
    """How often its client says that it sent this before."""
    streamed: bool = True
    """Whether anybody is told of the answer before it is whole."""
    one_call: bool = False
    """Of the calls in an answer the first is passed on; all that was sampled is in the record."""
    is_large: bool = False
    """Whether it takes so long to tokenize that a thread has to do it."""
    wants: Mapping[str, float | str] = field(default_factory=dict)
    """What it would have of the sampling, which is the Work's all the same: numbers, and a call of a tool."""


class Told(Protocol):
    """An answer as far as it is known, as each dialect tells it; `Answer` of a rollout is one.

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


class Growth:
    """What a stream of answers brings: `sent` holds the text that was told already, by its kind."""

    def __init__(self) -> None:
        self.sent: dict[TextKind, str] = {"reasoning": "", "content": ""}

    def of(self, answer: Told) -> Iterator[tuple[TextKind, str]]:
        """Kind and text of what an answer has more than the one before it, reasoning first."""
        texts: tuple[tuple[TextKind, str], ...] = (
            ("reasoning", answer.parsed.reasoning),
            ("content", answer.parsed.content),
        )
        for kind, text in texts:
            if more := text[len(self.sent[kind]) :]:
                self.sent[kind] = text
                yield kind, more


def retries(headers: Mapping[str, str]) -> int:
    """How often a client's SDK sent a request before, by its own count. It is all that those of OpenAI and Anthropic
    say of it: unless they are told to, they send no Idempotency-Key."""
    count = headers.get("x-stainless-retry-count", "0")
    return int(count) if count.isdecimal() and len(count) < 10 else 0


def wanted(body: Mapping[str, Any], **more: Any) -> dict[str, float | str]:
    """Of the sampling, in the body of a request. That a tool must be called is a wish, too: none can be forced. `more`:
    what a chat completion's fields go by in another dialect."""
    given = {name: body[name] for name in SAMPLING if body.get(name) is not None} | wishes({**body, **more})
    wants: dict[str, float | str] = {
        name: value if isinstance(value, str) else float(value) for name, value in given.items()
    }
    return wants | ({"tool_choice": REQUIRED} if choice_of(body.get("tool_choice")) == REQUIRED else {})


def function_tool(given: Mapping[str, Any], parameters: str = "parameters") -> dict[str, Any]:
    """Of a function as it is offered, with what its `parameters` go by. Raises Refused."""
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


def one_call(body: Mapping[str, Any]) -> bool:
    """Whether an answer may have one call at most, in either dialect's words."""
    choice = body.get("tool_choice")
    not_parallel = isinstance(choice, Mapping) and choice.get("disable_parallel_tool_use") is True
    return body.get("parallel_tool_calls") is False or not_parallel
