"""A model's text as a message: its reasoning, its text, its tool calls; by parsers for each family of templates.

While an answer is under way a parser tells only what no further token can change: a tool call is held back until it is
whole, and so is what may be the beginning of one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Protocol

from ratchet.conversation.stops import UNFINISHED
from ratchet.dialects.dialect import Parsed
from ratchet.grammars.grammar import CallForm
from ratchet.service.entry_points import EntryPoints
from ratchet.service.errors import SettingsError

THINK, THOUGHT = "<think>", "</think>"
CALL, CALLED = "<tool_call>", "</tool_call>"


class Parser(Protocol):
    """Registered by name in the entry point group `ratchet.parsers`; made without arguments.

    One that has the attribute `call_form` says how its models write a call, so that a call can be required of them.
    """

    @classmethod
    def fits(cls, source: str) -> bool:
        """Tell whether a model with this chat template writes its tool calls as this reads them."""

    def parse(self, text: str, *, whole: bool) -> Parsed:
        """Parse all the text so far. The result for a text is the beginning of that for a longer one."""


class PlainParser:
    """Reasoning between `<think>` and `</think>` at the beginning, text; no tools."""

    @classmethod
    def fits(cls, source: str) -> bool:
        return True

    def parse(self, text: str, *, whole: bool) -> Parsed:
        reasoning, said = _split_reasoning(text, whole=whole)
        return Parsed(said if whole else _safe(said, (UNFINISHED,)), reasoning)


class HermesParser:
    """Tool calls as `<tool_call>{"name": …, "arguments": {…}}</tool_call>`: Qwen's and Hermes' templates.

    What is no such call stays text.
    """

    call_form = CallForm(f"{CALL}\n", "arguments", f"\n{CALLED}")

    @classmethod
    def fits(cls, source: str) -> bool:
        return CALL in source

    def parse(self, text: str, *, whole: bool) -> Parsed:
        reasoning, said = _split_reasoning(text, whole=whole)
        content, mark, rest = said.partition(CALL)
        if not mark:
            return Parsed(said if whole else _safe(said, (CALL, UNFINISHED)), reasoning)
        calls = [_call(part.partition(CALLED)[0], "arguments") for part in rest.split(CALL)]
        if whole and (not calls or None in calls):
            return Parsed(said, reasoning)
        return Parsed(content.rstrip(), reasoning, tuple(call for call in calls if call) if whole else ())


class LlamaParser:
    """One call as `{"name": …, "parameters": {…}}`, and nothing else: Llama 3.1's template."""

    call_form = CallForm("", "parameters", "")

    @classmethod
    def fits(cls, source: str) -> bool:
        return '"parameters": ' in source and "start_header_id" in source

    def parse(self, text: str, *, whole: bool) -> Parsed:
        said = text.removeprefix("<|python_tag|>").lstrip()
        if said.startswith("{") or (not said and not whole):
            call = _call(said, "parameters") if whole else None
            if call or not whole:
                return Parsed(calls=(call,) if call else ())
        return Parsed(text if whole else _safe(text, (UNFINISHED,)))


PARSERS = EntryPoints("ratchet.parsers", "parser", SettingsError)
"""Their names are those of families of models."""
OURS = ("hermes", "llama3", "plain")
"""Parsers in the order in which they are asked, behind those of other packages; the last fits every template."""


def parser_name(source: str, installed: Mapping[str, type[Parser]] | None = None) -> str:
    """The parser for a chat template: the first that fits. `installed`: those there are, if absent."""
    parsers = installed_parsers() if installed is None else installed
    others = sorted(parsers.keys() - set(OURS))
    return next(name for name in (*others, *OURS) if name in parsers and parsers[name].fits(source))


def parser_for(source: str) -> Parser:
    parsers = installed_parsers()
    return parsers[parser_name(source, parsers)]()


def call_form_of(source: str | None) -> CallForm | None:
    """Return how a model with this chat template writes a call; None where that is not known."""
    return getattr(parser_for(source), "call_form", None) if source else None


@cache
def installed_parsers() -> Mapping[str, type[Parser]]:
    """Return the installed parsers by name. Raises SettingsError for one that can't be imported."""
    return {name: PARSERS.load(name) for name in sorted(PARSERS.names)}


def _split_reasoning(text: str, *, whole: bool) -> tuple[str, str]:
    """Reasoning, and what came after it."""
    begun = text.lstrip()
    if begun.startswith(THINK):
        reasoning, _, said = begun.removeprefix(THINK).partition(THOUGHT)
        shown = reasoning if whole or THOUGHT in begun else _safe(reasoning, (THOUGHT, UNFINISHED))
        return shown.strip("\n"), said.lstrip("\n")
    return "", "" if not whole and THINK.startswith(begun) else text


def _safe(text: str, marks: Sequence[str]) -> str:
    """Return the text without an end that may begin a mark, and without white space before it."""
    longest = max(len(mark) for mark in marks)
    if not any(mark[0] in text[-longest:] for mark in marks):
        return text.rstrip()
    for size in range(min(longest, len(text)), 0, -1):
        if any(mark.startswith(text[-size:]) for mark in marks):
            return text[:-size].rstrip()
    return text.rstrip()


def _call(body: str, field: str) -> tuple[str, str] | None:
    """None for what is no call: also one with what clients can't be told in JSON (NaN, half of a surrogate pair)."""
    try:
        said: Any = json.loads(body)
        name, arguments = said["name"], said.get(field, {})
        _json(name)
        written = _text_of(arguments) if isinstance(arguments, str) else _json(arguments)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return (name, written) if isinstance(name, str) else None


def _text_of(arguments: str) -> str:
    """Text, in which there may be JSON."""
    _json(arguments)
    with suppress(json.JSONDecodeError):
        _json(json.loads(arguments))
    return arguments


def _json(value: Any) -> str:
    """Raises ValueError for what a body of HTTP can't hold."""
    written = json.dumps(value, ensure_ascii=False, allow_nan=False)
    written.encode()
    return written
