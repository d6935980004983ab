"""What clients may name: their own, as long as it is among the newest."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.dialects.body import Refused
from ratchet.dialects.kept_turns import KeptTurns
from ratchet.dialects.responses import NAMING


def make_response(number: int, previous: str | None = None) -> dict[str, Any]:
    item = {"id": f"msg_{number}", "type": "message", "role": "assistant", "content": f"answer {number}"}
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
