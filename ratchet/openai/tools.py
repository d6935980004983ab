"""Tools in OpenAI's form, as clients offer them and as answers call them; what of it is honoured is said once, here.

Calls are made by whoever asked: neither front runs a tool. Names and arguments are as the model wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, WithJsonSchema
from pydantic_core import PydanticCustomError

from ratchet.grammars.grammar import FormatRefused, check_format
from ratchet.openai.honoured import refusal
from schemas.messages.task import AnswerFormat, Tool

REQUIRED = "required"
CHOICES = ("auto", "none", REQUIRED)
"""Choices of tools."""
UNKNOWN_CHOICE = "tool_choice is auto, none, required, or a tool by its name"


class Given(BaseModel):
    """A part of a request: an unknown field is refused, so that nothing is silently without effect."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def not_supported(name: str) -> BeforeValidator:
    """Takes null and what else asks for none of that field (honoured.py)."""

    def refuse(value: Any) -> None:
        if why := refusal(name, value):
            raise PydanticCustomError("not_supported", "this fleet does not do that: {why}", {"why": why})

    return BeforeValidator(refuse)


class GivenFunction(Given):
    name: str = Field(min_length=1, max_length=128)
    description: str | None = None
    parameters: dict[str, Any] | None = Field(None, description="JSON Schema of the arguments.")
    strict: StrictBool | None = Field(None, description="No effect: arguments are as the model wrote them.")


class GivenTool(Given):
    type: Literal["function"]
    function: GivenFunction


class GivenCalledFunction(Given):
    name: str = Field(min_length=1)
    arguments: str


class GivenCall(Given):
    """A call of an earlier answer, which a client sends back."""

    id: str = Field(min_length=1)
    type: Literal["function"] = "function"
    function: GivenCalledFunction
    index: int | None = None


def choice_of(given: Any) -> Any:
    """Return the choice of tools, by OpenAI's names in any dialect; what is none of them as it was given."""
    given = "auto" if given is None else given
    kind = given.get("type") if isinstance(given, Mapping) else None
    named = REQUIRED if chosen_tool(given) is not None else given
    return {"auto": "auto", "none": "none", "any": REQUIRED}.get(str(kind), named)


def chosen_tool(given: Any) -> str | None:
    """Return the name of the one tool that a choice names, in any dialect."""
    if not isinstance(given, Mapping) or given.get("type") not in ("function", "tool"):
        return None
    inner = given.get("function", given)
    name = inner.get("name") if isinstance(inner, Mapping) else None
    return name if isinstance(name, str) and name else None


class ChosenFunction(Given):
    name: str = Field(min_length=1)


class ChosenTool(Given):
    """A choice of one tool."""

    type: Literal["function"] = "function"
    function: ChosenFunction


def _choice(value: Any) -> Any:
    if (choice := choice_of(value)) not in CHOICES:
        raise PydanticCustomError("not_supported", "this fleet does not do that: {why}", {"why": UNKNOWN_CHOICE})
    name = chosen_tool(value)
    return choice if name is None else {"function": {"name": name}}


CHOSEN: dict[str, Any] = {
    "anyOf": [
        {"enum": [*CHOICES, None]},
        {"type": "object", "properties": {"type": {"enum": ["auto", "none", "any"]}}, "required": ["type"]},
        {
            "type": "object",
            "properties": {
                "type": {"const": "function"},
                "function": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
            },
            "required": ["type", "function"],
        },
    ]
}
ToolChoice = Annotated[
    Literal["auto", "none", "required"] | ChosenTool | None,
    BeforeValidator(_choice),
    WithJsonSchema(CHOSEN, mode="validation"),
]


class AnsweredFunction(BaseModel):
    name: str
    arguments: str = Field(description="JSON, as the model wrote it.")


class AnsweredCall(BaseModel):
    id: str
    type: Literal["function"] = "function"
    function: AnsweredFunction


def answered_calls(ids: Sequence[str], calls: Sequence[tuple[str, str]]) -> list[AnsweredCall]:
    """Names and arguments, under these ids."""
    return [
        AnsweredCall(id=one, function=AnsweredFunction(name=name, arguments=arguments))
        for one, (name, arguments) in zip(ids, calls, strict=True)
    ]


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
