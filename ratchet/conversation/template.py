"""A model's chat template: messages to text as transformers renders them, and that text to token ids. No transformers.

Control tokens are only those the template writes. Those that stand in a message are marked with two characters of a
private use area before rendering, and encoded as plain text; so what the template wrote can be told from what it was
given (bridge.py). Tests hold text and ids against `apply_chat_template(..., sanitize_control_tokens=True)`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock, Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ratchet.conversation.messages import Message, for_template
from ratchet.service.errors import PromptRefused

MARK, UNMARK = "\U000f0000", "\U000f0001"
REFUSALS = (jinja2.TemplateError, KeyError, TypeError, ValueError, AttributeError)
"""The errors a template raises where it does not take the messages."""

Tools = Sequence[Mapping[str, Any]]


class Codec(Protocol):
    """The part of a tokenizer that a template needs. Adds no tokens of its own."""

    def encode(self, text: str, *, plain: bool = False) -> list[int]:
        """`plain`: control tokens in the text are text."""

    def decode(self, ids: Sequence[int]) -> str:
        """Control tokens included."""


class ChatTemplate:
    """`control`: tokens that only the template may write. `ends`: those that end an answer, by id. `variables`: what
    the template sees besides, such as `bos_token` or `enable_thinking`."""

    def __init__(
        self,
        source: str,
        codec: Codec,
        *,
        control: Sequence[str],
        ends: Mapping[int, str],
        variables: Mapping[str, Any] | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self.source = source
        self.codec = codec
        self.ends = ends
        self._variables = dict(variables or {})
        longest_first = "|".join(map(re.escape, sorted(control, key=len, reverse=True))) or "(?!)"
        self._control = re.compile(longest_first)
        self._marked = re.compile(f"{MARK}({longest_first}){UNMARK}|[{MARK}{UNMARK}]")
        self._compiled = _environment(now).from_string(source)

    def render(self, messages: Sequence[Message], tools: Tools = (), *, ask: bool) -> str:
        """The text of the messages, what they hold of control tokens marked. `ask`: with the start of an answer.

        Raises PromptRefused where the template does not take them.
        """
        seen = [self._mark(for_template(message)) for message in messages]
        given = {"tools": self._mark(list(tools)) or None, "documents": None, "add_generation_prompt": ask}
        try:
            return self._compiled.render(**{**self._variables, "messages": seen, **given})
        except REFUSALS as error:
            raise PromptRefused(f"the model's chat template does not take these messages: {error}") from error

    def encode(self, text: str, *, first: bool = True) -> list[int]:
        """Ids of rendered text; `first`: nothing stands before it."""
        pieces: list[str | None] = self._marked.split(text)
        ids: list[int] = []
        for number, piece in enumerate(pieces):
            if piece:
                at_start = first and number == 0
                ids += self._encode(piece, plain=number % 2 == 1, at_start=at_start)
        return ids

    def text(self, ids: Sequence[int]) -> str:
        """Decode what was sampled, without the token that ended it."""
        return self.codec.decode(ids[:-1] if self.ends_itself(ids) else ids)

    def ends_itself(self, ids: Sequence[int]) -> bool:
        """Return whether the model ended the answer itself."""
        return bool(ids) and ids[-1] in self.ends

    def remove_marks(self, text: str) -> str:
        return text.replace(MARK, "").replace(UNMARK, "")

    def end_of_turn(self, text: str, start: int) -> tuple[int, int] | None:
        """Find the place in rendered text, from there on, where the template first writes a token that ends an
        answer."""
        found = [(at, at + len(end)) for end in self.ends.values() if (at := _unmarked_find(text, end, start)) >= 0]
        return min(found, default=None)

    def _encode(self, piece: str, *, plain: bool, at_start: bool) -> list[int]:
        """Encode in the middle of a text, behind a line break that is taken off again: some tokenizers put a space
        first."""
        if at_start:
            return self.codec.encode(piece, plain=plain)
        line_break = self.codec.encode("\n")
        ids = self.codec.encode("\n" + piece, plain=plain)
        return ids[len(line_break) :] if ids[: len(line_break)] == line_break else self.codec.encode(piece, plain=plain)

    def _mark(self, value: Any) -> Any:
        if isinstance(value, str):
            text = self.remove_marks(value)
            return self._control.sub(_mark_token, text) if self._control.search(text) else text
        if isinstance(value, (dict, Mapping)):  # nearly all are the first, which is known at a glance
            return {key: self._mark(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._mark(item) for item in value]
        return value


def _mark_token(token: re.Match[str]) -> str:
    return f"{MARK}{token[0]}{UNMARK}"


def _unmarked_find(text: str, token: str, start: int) -> int:
    at = text.find(token, start)
    while at > 0 and text[at - 1] == MARK:
        at = text.find(token, at + 1)
    return at


class _Generation(Extension):
    """`{% generation %}` … `{% endgeneration %}`, which some templates put around answers: passes on what is inside."""

    tags = {"generation"}  # noqa: RUF012  (jinja2's own declaration)

    def parse(self, parser: Parser) -> Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return CallBlock(self.call_method("_render_body"), [], [], body).set_lineno(line)

    def _render_body(self, caller: Callable[[], str]) -> str:
        return caller()


class _Environment(ImmutableSandboxedEnvironment):
    def getattr(self, obj: Any, attribute: str) -> Any:
        """Templates write `message.role` for each message: found as jinja2 finds it, without an error on the way."""
        if type(obj) is dict and attribute in obj and not hasattr(dict, attribute):
            return obj[attribute]
        return super().getattr(obj, attribute)


def _environment(now: Callable[[], datetime]) -> ImmutableSandboxedEnvironment:
    """Set up an environment as transformers does; sandboxed, because templates come with models, which are
    strangers' files."""
    environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])

    def raise_exception(reason: str) -> None:
        raise jinja2.TemplateError(reason)

    def tojson(
        value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment.filters["tojson"] = tojson
    environment.globals |= {"raise_exception": raise_exception, "strftime_now": lambda form: now().strftime(form)}
    return environment
