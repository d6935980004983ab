"""What counts as the same answer in a vote."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.logs.votes import meaning

SAME = {
    "spaces and order": ('{"a": 1, "b": [2, 3]}', '{"b":[2,3],"a":1}\n'),
    "numbers": ("[2, -0.0, 100]", "[2.0, 0, 1e2]"),
    "escapes": ('"\\u00e9"', '"é"'),
    "white space around": ("abcde", "  abcde \n"),
    "ends of lines": ("a\r\nb  \r\n", "a\nb"),
    "one letter in two ways": ("caf\u00e9", "cafe\u0301"),
}
DIFFERENT = {
    "capitals": ("Yes", "yes"),
    "indentation": ("if x:\n  y", "if x:\ny"),
    "an explanation": ("42", "The answer is 42."),
    "a text and a number": ('"2"', "2"),
    "true and 1": ("true", "1"),
    "a name that is there twice": ('{"a": 1, "a": 2}', '{"a": 2}'),
    "no number": ("NaN", "[NaN]"),
    "numbers too large for a double": ("1e999", "-1e999"),
    "the order of a list": ("[1, 2]", "[2, 1]"),
    "whole numbers that no double holds": ("9007199254740993", "9007199254740992"),
}


@pytest.mark.parametrize("pair", SAME.values(), ids=SAME)
def test_these_say_the_same(pair: tuple[str, str]) -> None:
    assert meaning(pair[0]) == meaning(pair[1])


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=DIFFERENT)
def test_these_do_not(pair: tuple[str, str]) -> None:
    assert meaning(pair[0]) != meaning(pair[1])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


@settings(max_examples=50)
@given(JSON)
def test_json_means_its_values_however_it_is_written(value: object) -> None:
    ways = [json.dumps(value), json.dumps(value, indent=2, sort_keys=True), json.dumps(value, ensure_ascii=False)]

    assert len({meaning(way) for way in ways}) == 1


@settings(max_examples=50)
@given(st.text())
def test_any_text_means_something_and_white_space_around_it_nothing(text: str) -> None:
    assert meaning(text) == meaning(f"\n {text}\t\n")


@pytest.mark.parametrize("marks", ["\u0301" * 250_000 + "\u0316" * 250_000, "\u0f73" * 250_000], ids=["two", "hidden"])
def test_marks_heaped_upon_a_letter_are_not_put_in_order_which_would_take_minutes(marks: str) -> None:
    assert meaning(f"a{marks}") == f"text a{marks}"


@pytest.mark.parametrize("hostile", ["[" * 100_000, "1" * 10_000, '{"a":' * 50_000, "\ud800"], ids=len)
def test_what_would_break_a_parser_is_text(hostile: str) -> None:
    assert meaning(hostile).startswith("text ")
