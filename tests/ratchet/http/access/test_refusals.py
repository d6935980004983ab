"""Whoever is refused again and again fills no disk."""

from __future__ import annotations

from typing import Any

from ratchet.http.access.audited import MOST_CALLERS, Refusals
from tests.waiting import settled, until


def refusal(who: str | None = "somebody", status: int = 403, **more: Any) -> dict[str, Any]:
    return {"who": who, "from": "10.0.0.1", "status": status, "path": "/v1/x", **more}


async def test_the_first_is_a_line_and_the_rest_of_the_minute_a_number() -> None:
    noted: list[dict[str, Any]] = []
    refusals = Refusals(noted.append, window_s=0.05)

    for _ in range(1000):
        refusals.count_refusal(refusal())
    assert [line["event"] for line in noted] == ["refused"]

    await until(lambda: len(noted) == 2)
    assert [(line["event"], line.get("times")) for line in noted] == [("refused", None), ("refused_again", 999)]

    refusals.count_refusal(refusal())
    assert noted[-1]["event"] == "refused"


async def test_a_single_refusal_is_one_line() -> None:
    noted: list[dict[str, Any]] = []
    refusals = Refusals(noted.append, window_s=0.01)

    refusals.count_refusal(refusal())
    await settled()

    assert len(noted) == 1


async def test_callers_addresses_and_reasons_are_told_apart() -> None:
    noted: list[dict[str, Any]] = []
    refusals = Refusals(noted.append)

    for entry in (refusal("a"), refusal("b"), refusal("a", 429), refusal(None, 401), refusal(None, 401)):
        refusals.count_refusal(entry)

    assert [(line["who"], line["status"]) for line in noted] == [("a", 403), ("b", 403), ("a", 429), (None, 401)]


async def test_ten_thousand_callers_are_a_bounded_number_of_lines_and_none_is_lost() -> None:
    noted: list[dict[str, Any]] = []
    refusals = Refusals(noted.append)

    for number in range(10_000):
        refusals.count_refusal(refusal(f"caller-{number}"))
    refusals.close()

    assert len(noted) == MOST_CALLERS + 2
    assert sum(line.get("times", 1) for line in noted) == 10_000
    assert noted[-1] == {"event": "refused_again", "who": "others", "times": 10_000 - MOST_CALLERS - 1}
