"""From the form that an answer must have to its grammar; and forms that no answer can have."""

from __future__ import annotations

import time
from typing import Any

import pytest
from llguidance import LLMatcher

from ratchet.grammars.grammar import MOST_BYTES, MOST_DEPTH, CallForm, FormatRefused, check_format, grammar_for
from schemas.messages.task import AnswerFormat, Tool, ToolFunction

HERMES = CallForm("<tool_call>\n", "arguments", "\n</tool_call>")
PLACED = {"type": "object", "properties": {"order": {"type": "array", "items": {"type": "nothing"}}}}


def of_schema(schema: dict[str, Any]) -> AnswerFormat:
    return AnswerFormat(type="json_schema", json_schema=schema)


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def a_tool(name: str, parameters: dict[str, Any] | None = None) -> Tool:
    return Tool(function=ToolFunction(name=name, parameters=parameters))


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"enum": []}, "anyOf is empty"),
        ({"type": "integer", "minimum": 5, "maximum": 2}, "minimum"),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "incompatible types"),
        (PLACED, "/properties/order/items: Invalid type: nothing"),
        ({"$defs": {"a": {"not": {"type": "string"}}}, "$ref": "#/$defs/a"}, r"\$defs/a: Unimplemented keys"),
        ({"type": "string", "pattern": "(a"}, "regex"),
        ({"$ref": "https://example.org/schema"}, "does not fetch"),
        (nested(MOST_DEPTH), f"nested more than {MOST_DEPTH} deep"),
        ({"enum": ["x" * MOST_BYTES]}, f"may have {MOST_BYTES:,}"),
    ],
)
def test_a_schema_that_can_not_be_held_to_is_refused_with_the_place(schema: dict[str, Any], says: str) -> None:
    with pytest.raises(FormatRefused, match=says):
        check_format(of_schema(schema))


@pytest.mark.parametrize(
    ("format", "says"),
    [
        (AnswerFormat(type="json_schema"), "json_schema is missing"),
        (AnswerFormat(type="tool_call"), "no tool is offered"),
        (AnswerFormat(type="tool_call", tool="add"), "'add' is required, and no tool of that name"),
    ],
)
def test_a_form_without_its_schema_or_tool_is_refused(format: AnswerFormat, says: str) -> None:
    with pytest.raises(FormatRefused, match=says):
        check_format(format)


def test_a_call_that_can_not_be_written_is_refused() -> None:
    required = AnswerFormat(type="tool_call")

    with pytest.raises(FormatRefused, match="the parameters of the tool 'add': /properties/order/items"):
        check_format(required, [a_tool("add", PLACED)])
    with pytest.raises(FormatRefused, match="no known form of tool calls"):
        grammar_for(required, [a_tool("add")], None)


def test_the_largest_schemas_compile_in_time() -> None:
    wide = {"type": "object", "properties": {f"a-longer-name-{number}": {"type": "string"} for number in range(700)}}
    began = time.process_time()

    check_format(of_schema(wide))

    assert time.process_time() - began < 2


def test_equal_forms_have_equal_sums_and_others_have_not() -> None:
    one, same, other = (grammar_for(of_schema({"enum": values})) for values in (["a"], ["a"], ["b"]))

    assert one.sha256 == same.sha256 != other.sha256


def fits(text: str, format: AnswerFormat, *tools: Tool) -> bool:
    from demos.toy.byte_tokenizer import byte_tokenizer
    from tests.ratchet.grammars.byte_grammars import byte_grammars

    ids = byte_tokenizer(512).encode(text, add_special_tokens=False)
    matcher = LLMatcher(byte_grammars().tokenizer, grammar_for(format, tools, HERMES).text)
    return matcher.consume_tokens(ids) and matcher.is_accepting()


def test_a_call_is_written_as_the_template_writes_it() -> None:
    number = {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}
    tools = a_tool("add", number), a_tool('say "hi"')
    add = '<tool_call>\n{"name": "add", "arguments": {"n": 3}}\n</tool_call>'
    say = '<tool_call>\n{"name": "say \\"hi\\"", "arguments": {}}\n</tool_call>'

    assert fits(add, AnswerFormat(type="tool_call"), *tools)
    assert fits(say, AnswerFormat(type="tool_call"), *tools)
    assert not fits(say, AnswerFormat(type="tool_call", tool="add"), *tools)
    assert not fits(add.replace("3", '"3"'), AnswerFormat(type="tool_call"), *tools)


def test_json_has_one_way_to_be_written_and_a_call_may_stand_in_its_place() -> None:
    schema = of_schema({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "array"}}})

    assert fits('{"a": 1, "b": [true, null]}', schema)
    assert not fits('{ "a":1}', schema)
    assert fits('<tool_call>\n{"name": "add", "arguments": {"x": 1}}\n</tool_call>', schema, a_tool("add"))
    assert not fits('<tool_call>\n{"name": "add", "arguments": {"x": 1}}\n</tool_call>', schema)
