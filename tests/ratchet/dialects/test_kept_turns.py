"""What clients may name: their own, as long as it is among the newest."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.dialects.body import Refused
from ratchet.dialects.kept_turns import MOST_BYTES, KeptTurns
from ratchet.dialects.responses import NAMING


def make_response(number: int, previous: str | None = None, text: str | None = None) -> dict[str, Any]:
    content = f"answer {number}" if text is None else text
    item = {"id": f"msg_{number}", "type": "message", "role": "assistant", "content": content}
    return {"id": f"resp_{number}", "output": [item], "store": True, "previous_response_id": previous}


def test_a_response_brings_the_history_before_it() -> None:
    kept = KeptTurns()
    kept.keep(NAMING, {"input": "one"}, 10, make_response(1))
    kept.keep(NAMING, {"input": "two", "previous_response_id": "resp_1"}, 10, make_response(2, "resp_1"))

    found = kept.resolve(NAMING, {"input": "three", "previous_response_id": "resp_2"})["input"]

    assert [item["content"] for item in found] == ["one", "answer 1", "two", "answer 2", "three"]


@pytest.mark.parametrize(
    "named", [{"input": "x", "previous_response_id": "resp_1"}, {"input": [{"type": "item_reference", "id": "msg_1"}]}]
)
def test_nobody_is_given_what_another_was_told(named: dict[str, Any]) -> None:
    kept = KeptTurns()
    kept.keep(NAMING, {"input": "secret"}, 10, make_response(1), "ann")

    assert kept.resolve(NAMING, named, "ann")
    with pytest.raises(Refused, match="not kept here"):
        kept.resolve(NAMING, named, "bob")


def test_the_oldest_is_forgotten_beyond_the_bound_and_the_newest_is_kept_in_any_case() -> None:
    kept = KeptTurns(most_bytes=100)
    for number in (1, 2, 3):
        kept.keep(NAMING, {"input": "x"}, 60 * number, make_response(number))

    assert kept.resolve(NAMING, {"input": "y", "previous_response_id": "resp_3"})
    with pytest.raises(Refused):
        kept.resolve(NAMING, {"input": "y", "previous_response_id": "resp_2"})


def test_what_is_named_again_and_again_is_refused_once_it_is_too_much() -> None:
    kept = KeptTurns()
    kept.keep(NAMING, {"input": "x"}, 10, make_response(1, text="y" * (MOST_BYTES * 3 // 4)))
    named = {"type": "item_reference", "id": "msg_1"}

    assert kept.resolve(NAMING, {"input": [named]})
    with pytest.raises(Refused, match="have more than 4,194,304 bytes together") as refused:
        kept.resolve(NAMING, {"input": [named] * 2})
    assert (refused.value.status, refused.value.error["param"]) == (400, "input")


def test_a_history_and_items_count_together_and_the_refusal_names_the_setting() -> None:
    kept = KeptTurns(most_named=500, setting="MOST_BYTES_SETTING")
    kept.keep(NAMING, {"input": "x"}, 10, make_response(1, text="y" * 200))
    history: dict[str, Any] = {"previous_response_id": "resp_1"}
    named = {"type": "item_reference", "id": "msg_1"}

    assert kept.resolve(NAMING, {"input": "z" * 1000} | history), "what is sent whole does not count"
    assert kept.resolve(NAMING, {"input": [named]})
    with pytest.raises(Refused, match=r"500 bytes \(MOST_BYTES_SETTING\)"):
        kept.resolve(NAMING, {"input": [named]} | history)
