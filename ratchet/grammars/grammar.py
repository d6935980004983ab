"""Makes the grammar of an answer from the form that a task or a request asks for. Needs no model and no tokenizer.

A grammar is a text in llguidance's dialect of Lark. JSON has one way to be written, with `, ` and `: ` and no other
white space, as chat templates write it: a model can't fill its answer with white space. A call of a tool is written as
the model's own chat template writes one. Which tokens a grammar allows is masks.py's affair.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from llguidance import LLMatcher, LLParserLimits

from ratchet.service.errors import PromptRefused
from schemas.messages.task import AnswerFormat, Tool
from schemas.messages.work import Grammar

MOST_BYTES = 32 * 1024
"""Bytes of a schema as JSON. The worst that fits compiles in a tenth of a second."""
MOST_DEPTH = 32
"""Objects and lists of a schema that lie in each other."""
LIMITS = LLParserLimits(verbose_errors=False)
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
WRITTEN = {"x-guidance": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}}
OF_MAPS = ("properties", "$defs", "definitions", "patternProperties")
OF_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
OF_ONE = ("items", "additionalProperties")
"""Keywords of JSON Schema that hold further schemas: by name, in a list, or one."""


@dataclass(frozen=True, slots=True)
class CallForm:
    """The way a family of models writes a call of a tool: an object with `name` and the arguments under that name."""

    begin: str
    arguments: str
    end: str


class FormatRefused(PromptRefused):
    """No answer can have this form. `place`: in the schema, as a JSON pointer."""

    def __init__(self, why: str, place: str = "") -> None:
        super().__init__(f"{place}: {why}" if place else why)
        self.place = place


def grammar_for(format: AnswerFormat, tools: Sequence[Tool] = (), form: CallForm | None = None) -> Grammar:
    """Return the grammar of answers to a prompt with these tools, by a model that writes calls in this form.

    A JSON answer to a prompt with tools may be a call as well. Raises FormatRefused.
    """
    check_format(format, tools)
    rules = {} if format.type == "tool_call" else {"answer": f"%json {_write_schema(_schema_of(format))}"}
    if form is not None:
        rules |= _call_rules(_callable_tools(format, tools), form, strict=format.type == "tool_call")
    elif format.type == "tool_call":
        raise FormatRefused("the model's chat template has no known form of tool calls, so no call can be required")
    starts = [name for name in rules if not name.startswith("arguments_")]
    text = "\n".join([f"start: {' | '.join(starts)}", *(f"{name}: {rule}" for name, rule in rules.items())])
    return Grammar(text=text, sha256=hashlib.sha256(text.encode()).hexdigest())


def _call_rules(tools: Sequence[Tool], form: CallForm, *, strict: bool) -> dict[str, str]:
    rules = {}
    for number, tool in enumerate(tools):
        schema = parameters_of(tool) if strict else ANY_OBJECT
        begin = f'{form.begin}{{"name": {json.dumps(tool.function.name)}, "{form.arguments}": '
        rules[f"call_{number}"] = f"{json.dumps(begin)} arguments_{number} {json.dumps(f'}}{form.end}')}"
        rules[f"arguments_{number}"] = f"%json {_write_schema(schema)}"
    return rules


def parameters_of(tool: Tool) -> Mapping[str, Any]:
    """Return the schema of a tool's arguments. One that names none takes none."""
    return tool.function.parameters or NO_ARGUMENTS


def check_format(format: AnswerFormat, tools: Sequence[Tool] = ()) -> None:
    """Raises FormatRefused for a form that no answer can have, whatever the model."""
    if format.type != "tool_call":
        check_schema(_schema_of(format))
        return
    if not (offered := _callable_tools(format, tools)):
        raise FormatRefused(
            "a call of a tool is required, and no tool is offered"
            if format.tool is None
            else f"a call of {format.tool!r} is required, and no tool of that name is offered"
        )
    for tool in offered:
        try:
            check_schema(parameters_of(tool))
        except FormatRefused as error:
            raise FormatRefused(f"the parameters of the tool {tool.function.name!r}: {error}") from None


def _callable_tools(format: AnswerFormat, tools: Sequence[Tool]) -> list[Tool]:
    """Return the tools that the answer may call."""
    return [tool for tool in tools if format.tool in (None, tool.function.name)]


def _schema_of(format: AnswerFormat) -> Mapping[str, Any]:
    if format.type == "json_object":
        return ANY_OBJECT
    if format.json_schema is None:
        raise FormatRefused("json_schema is missing: send the schema, or take json_object")
    return format.json_schema


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raises FormatRefused with the place in a schema that is too large or deep, not supported, or matches nothing."""
    written = _write_schema(schema)
    if (size := len(written.encode())) > MOST_BYTES:
        raise FormatRefused(f"the schema has {size:,} bytes, and may have {MOST_BYTES:,}")
    if why := _fault(written):
        place, why = _find_place(schema, schema, why)
        raise FormatRefused(why, place)


def _write_schema(schema: Mapping[str, Any]) -> str:
    """Raises FormatRefused for what is too deep to be written."""
    if (place := _too_deep(schema)) is not None:
        raise FormatRefused(f"the schema is nested more than {MOST_DEPTH} deep", place)
    return json.dumps({**schema, **WRITTEN})


def _too_deep(value: Any, place: str = "", left: int = MOST_DEPTH) -> str | None:
    """Return the place at which there are too many levels."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if inner and not left:
        return place
    found = (_too_deep(one, f"{place}/{name}", left - 1) for name, one in inner)
    return next((one for one in found if one is not None), None)


@lru_cache(maxsize=256)
def _fault(written: str) -> str | None:
    """Say why a schema can't be compiled; None where it can."""
    said: str = LLMatcher.validate_grammar(f"start: %json {written}", None, limits=LIMITS)
    why = said.partition("\n   1 |")[0].partition("failed to compile JSON schema: ")
    return " ".join((why[2] or why[0]).split()) or None


def _find_place(schema: Mapping[str, Any], root: Mapping[str, Any], why: str, place: str = "") -> tuple[str, str]:
    """Return the innermost schema that can't be compiled even by itself, and why."""
    known = {name: root[name] for name in ("$defs", "definitions") if name in root}
    for name, inner in _inner_schemas(schema):
        if inner is not None and (own := _fault(json.dumps(known | inner | WRITTEN))):
            return _find_place(inner, root, own, f"{place}/{name}")
    return place, why


def _inner_schemas(schema: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any] | None]]:
    for keyword in OF_MAPS:
        inner = schema.get(keyword)
        yield from ((f"{keyword}/{name}", _as_schema(one)) for name, one in _items(inner))
    for keyword in OF_LISTS:
        inner = schema.get(keyword)
        yield from (
            (f"{keyword}/{at}", _as_schema(one)) for at, one in enumerate(inner if isinstance(inner, list) else ())
        )
    yield from ((keyword, _as_schema(schema.get(keyword))) for keyword in OF_ONE)


def _items(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def _as_schema(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None
