from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.conversation.stops import count_held_back
from ratchet.rollouts.parsing import (
    HermesParser,
    LlamaParser,
    Parsed,
    Parser,
    PlainParser,
    installed_parsers,
    parser_name,
)
from tests.ratchet.conversation.speakers import source_of

CALL = '<tool_call>\n{"name": "look", "arguments": {"box": "é"}}\n</tool_call>'
LOOK = (("look", '{"box": "é"}'),)


def called(arguments: str) -> str:
    return f'<tool_call>\n{{"name": "look", "arguments": {arguments}}}\n</tool_call>'


@pytest.mark.parametrize(
    ("parser", "text", "parsed"),
    [
        (PlainParser(), "a coin ", Parsed("a coin ")),
        (PlainParser(), "<think>\nhm\n</think>\n\na coin", Parsed("a coin", "hm")),
        (PlainParser(), "<think>\nhm", Parsed("", "hm")),
        (PlainParser(), CALL, Parsed(CALL)),
        (HermesParser(), CALL, Parsed(calls=LOOK)),
        (HermesParser(), f"I look.\n{CALL}\n{CALL}", Parsed("I look.", calls=LOOK * 2)),
        (HermesParser(), f"<think>\nhm\n</think>\n\n{CALL}", Parsed("", "hm", LOOK)),
        (HermesParser(), "<tool_call>\n{broken}\n</tool_call>", Parsed("<tool_call>\n{broken}\n</tool_call>")),
        (HermesParser(), "1 < 2", Parsed("1 < 2")),
        (HermesParser(), called('["red", 7]'), Parsed(calls=(("look", '["red", 7]'),))),
        (HermesParser(), called('"red"'), Parsed(calls=(("look", "red"),))),
        (HermesParser(), called('{"box": NaN}'), Parsed(called('{"box": NaN}'))),
        (HermesParser(), called('{"box": 1e999}'), Parsed(called('{"box": 1e999}'))),
        (HermesParser(), called(r'{"box": "\ud800"}'), Parsed(called(r'{"box": "\ud800"}'))),
        (HermesParser(), called(r'"{\"box\": -Infinity}"'), Parsed(called(r'"{\"box\": -Infinity}"'))),
        (LlamaParser(), '{"name": "look", "parameters": {"box": "é"}}', Parsed(calls=LOOK)),
        (LlamaParser(), '{"box": 1}', Parsed('{"box": 1}')),
        (LlamaParser(), "a coin", Parsed("a coin")),
    ],
)
def test_what_was_said_is_told_apart(parser: Parser, text: str, parsed: Parsed) -> None:
    assert parser.parse(text, whole=True) == parsed


pieces = st.lists(
    st.sampled_from(("a ", "<", "think>", "<think>", "</think>", "\n", CALL, "<tool_call>", "{", "é", "�"))
)


@pytest.mark.parametrize("parser", [PlainParser(), HermesParser(), LlamaParser()], ids=lambda one: type(one).__name__)
@given(said=pieces)
def test_what_is_told_early_is_never_taken_back(parser: Parser, said: list[str]) -> None:
    text = "".join(said)
    last = parser.parse(text, whole=True)
    for end in range(len(text)):
        early = parser.parse(text[:end], whole=False)
        assert last.reasoning.startswith(early.reasoning) or not last.calls
        assert early.calls == ()
        assert last.content.startswith(early.content), (text[:end], early, last)


def test_the_template_says_which_parser() -> None:
    names = {name: parser_name(source_of(name)) for name in ("smollm2", "llama3_1", "qwen2_5", "qwen3")}

    assert names == {"smollm2": "plain", "llama3_1": "llama3", "qwen2_5": "hermes", "qwen3": "hermes"}


class Ours(PlainParser):
    """Of a family that nobody here knows."""

    @classmethod
    def fits(cls, source: str) -> bool:
        return "<|im_start|>" in source


def test_a_parser_of_another_package_is_asked_before_those_that_come_along() -> None:
    installed = {**installed_parsers(), "ours": Ours}
    names = {name: parser_name(source_of(name), installed) for name in ("smollm2", "llama3_1", "qwen2_5")}

    assert names == {"smollm2": "ours", "llama3_1": "llama3", "qwen2_5": "ours"}
    assert list(installed_parsers()) == ["hermes", "llama3", "plain"]


@given(said=st.text("ab. ", max_size=12), stop=st.lists(st.text("ab. ", min_size=1, max_size=4), max_size=3))
def test_what_is_held_back_is_what_may_begin_a_stop_string_and_no_more(said: str, stop: list[str]) -> None:
    held = count_held_back(said, stop)

    sizes = range(1, len(said) + 1)
    begins = [size for size in sizes for word in stop if size < len(word) and said.endswith(word[:size])]
    assert held == max(begins, default=0)
