from __future__ import annotations

from typing import Any

import pytest

from ratchet.conversation.messages import canonical, sameness
from ratchet.service.errors import PromptRefused


def call(arguments: str, **other: str) -> dict[str, Any]:
    return {"id": other.get("id", "c1"), "function": {"name": other.get("name", "look"), "arguments": arguments}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"role": "user", "content": "a", "audio": None, "refusal": None}, {"role": "user", "content": "a"}),
        ({"role": "developer", "content": "a"}, {"role": "system", "content": "a"}),
        (
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]},
            {"role": "user", "content": "a\nb"},
        ),
        (
            {"role": "assistant", "content": None, "tool_calls": [], "reasoning": "hm"},
            {"role": "assistant", "content": "", "reasoning_content": "hm"},
        ),
        (
            {"role": "assistant", "tool_calls": [call('{"a": 1}') | {"index": 0}]},
            {"role": "assistant", "content": "", "tool_calls": [call('{"a": 1}') | {"type": "function"}]},
        ),
        (
            {"role": "tool", "content": "x", "tool_call_id": "c1", "name": "look"},
            {"role": "tool", "content": "x", "tool_call_id": "c1", "name": "look"},
        ),
    ],
)
def test_messages_have_one_form(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert canonical(given) == expected


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"content": "a"}, "no role"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}, "'image_url'.*text only"),
        ({"role": "user", "content": 5}, "neither text nor a list"),
        ({"role": "assistant", "tool_calls": [{"id": "c1"}]}, "no function"),
        ({"role": "assistant", "tool_calls": ["look"]}, "no function"),
    ],
)
def test_what_is_no_text_message_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(PromptRefused, match=reason):
        canonical(given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"content": "a b", "reasoning_content": "hm", "tool_calls": [call('{"x": 1}')]}, "same"),
        ({"content": " a b\n", "reasoning_content": "hm", "tool_calls": [call('{"x": 1}')]}, "normalised"),
        ({"content": "a b", "tool_calls": [call('{"x": 1}')]}, "normalised"),
        ({"content": "a b", "reasoning_content": "hm", "tool_calls": [call('{"x":1}')]}, "normalised"),
        ({"content": "a  b", "reasoning_content": "hm", "tool_calls": [call('{"x": 1}')]}, None),
        ({"content": "a b", "reasoning_content": "m\n", "tool_calls": [call('{"x": 1}')]}, "normalised"),
        ({"content": "a b", "reasoning_content": "h", "tool_calls": [call('{"x": 1}')]}, None),
        ({"content": "a b", "reasoning_content": "ho", "tool_calls": [call('{"x": 1}')]}, None),
        ({"content": "a b", "tool_calls": [call('{"x": 2}')]}, None),
        ({"content": "a b", "tool_calls": [call('{"x": 1}', id="c2")]}, None),
        ({"content": "a b", "tool_calls": [call('{"x": 1}', name="see")]}, None),
        ({"content": "a b"}, None),
    ],
)
def test_an_answer_is_known_again_by_what_it_says(given: dict[str, Any], expected: str | None) -> None:
    said = {"content": "a b", "reasoning_content": "hm", "tool_calls": [call('{"x": 1}')]}

    assert sameness(canonical({"role": "assistant"} | said), canonical({"role": "assistant"} | given)) == expected


@pytest.mark.parametrize(
    ("told", "back", "expected"),
    [
        ("red", "{}", "normalised"),
        ('["red"]', "{}", "normalised"),
        ("{}", "red", None),
        ("red", '{"box": "red"}', None),
        ('{"x": 9007199254740993}', '{"x":9007199254740992}', "normalised"),
        ('{"x": 12345678901234567890}', '{"x":1.2345678901234567e19}', "normalised"),
        ('{"x": 1}', '{"x": "1"}', None),
    ],
)
def test_arguments_come_back_as_a_dialect_and_a_client_can_write_them(
    told: str, back: str, expected: str | None
) -> None:
    recorded, given = (canonical({"role": "assistant", "tool_calls": [call(one)]}) for one in (told, back))

    assert sameness(recorded, given) == expected


def test_reasoning_within_the_text_may_be_left_out_and_what_a_user_said_may_not_differ() -> None:
    thought = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nyes"}

    assert sameness(thought, {"role": "assistant", "content": "yes"}) == "normalised"
    assert sameness({"role": "user", "content": "a"}, {"role": "user", "content": "a "}) is None
