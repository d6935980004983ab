"""The form that a request asks its answer to have, in any dialect: a format of text, or a call that is required."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ratchet.grammars.grammar import FormatRefused, check_format
from ratchet.openai.tools import REQUIRED, choice_of, chosen_tool
from schemas.messages.task import AnswerFormat, Tool

SCHEMA = "json_schema"


def read_format(given: Any) -> AnswerFormat | None:
    """Return a format of text; None where any text will do. Raises FormatRefused for one that no answer can have."""
    kind = given.get("type") if isinstance(given, Mapping) else None
    if not given or kind == "text":
        return None
    if kind not in ("json_object", SCHEMA):
        raise FormatRefused(f"a format is text, json_object or json_schema, not {kind!r}")
    inner = given.get(SCHEMA, given) if kind == SCHEMA else {}
    schema = inner.get("schema") if isinstance(inner, Mapping) else None
    if kind == SCHEMA and not isinstance(schema, dict):
        raise FormatRefused("the schema of json_schema is missing, or no object")
    found = AnswerFormat(type=kind, json_schema=schema if kind == SCHEMA else None)
    check_format(found)
    return found


def read_required_call(choice: Any, tools: Sequence[Mapping[str, Any]]) -> AnswerFormat | None:
    """Return the call that a choice of tools requires; None where it requires none. Raises FormatRefused."""
    if choice_of(choice) != REQUIRED:
        return None
    found = AnswerFormat(type="tool_call", tool=chosen_tool(choice))
    check_format(found, [Tool.model_validate(tool) for tool in tools])
    return found
