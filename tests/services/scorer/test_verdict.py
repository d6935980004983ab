from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scorer.verdict import Case, Grade, Shown, VerdictError, parse_verdict, verdict_schema

CASE = Case("n", "What?", (Shown("a", "one"), Shown("b", "two")))


def reply(nonce: Any = "n", **changes: Any) -> dict[str, Any]:
    verdicts = [{"id": "b", "reason": "so so", "score": 5}, {"id": "a", "reason": "good", "score": 10}]
    return {"nonce": nonce, "verdicts": verdicts} | changes


def one(**changes: Any) -> dict[str, Any]:
    return {"id": "a", "reason": "", "score": 1} | changes


def test_grades_come_in_the_order_shown_as_shares_of_the_top() -> None:
    assert parse_verdict(json.dumps(reply()), CASE) == [Grade(1.0, "good"), Grade(0.5, "so so")]


@pytest.mark.parametrize(
    "bad",
    [
        reply(nonce="m"),
        reply(nonce=3),
        reply(extra=1),
        reply(verdicts=[]),
        reply(verdicts=[one()]),
        reply(verdicts=[one(), one()]),
        reply(verdicts=[one(), one(id="b"), one(id="c")]),
        reply(verdicts=[one(), one(id="c")]),
        reply(verdicts=[one(), one(id="b", score=11)]),
        reply(verdicts=[one(), one(id="b", score=-1)]),
        reply(verdicts=[one(), one(id="b", score=7.5)]),
        reply(verdicts=[one(), one(id="b", score="7")]),
        reply(verdicts=[one(), one(id="b", score=True)]),
        reply(verdicts=[one(), one(id="b", score=None)]),
        reply(verdicts=[one(), {"id": "b", "score": 3}]),
        reply(verdicts=[one(), one(id="b", more=1)]),
        reply(verdicts={"a": 1, "b": 2}),
        [],
        "10",
        10,
        None,
    ],
)
def test_anything_but_a_whole_verdict_is_refused(bad: Any) -> None:
    with pytest.raises(VerdictError):
        parse_verdict(json.dumps(bad), CASE)


@pytest.mark.parametrize(
    "text",
    ["", "score: 10", "```json\n" + json.dumps(reply()) + "\n```", json.dumps(reply()) + " done", "[" * 100_000, "NaN"],
)
def test_text_around_or_instead_of_json_is_no_verdict(text: str) -> None:
    with pytest.raises(VerdictError, match="no verdict"):
        parse_verdict(text, CASE)


def test_the_schema_accepts_a_verdict_and_refuses_other_scores_ids_and_nonces() -> None:
    schema = verdict_schema(CASE)
    jsonschema.validate(reply(), schema)
    for bad in (reply(nonce="m"), reply(verdicts=[one(score=11)]), reply(verdicts=[one(id="c")]), reply(extra=1)):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, schema)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["nonce", "verdicts", "id", "reason", "score"]), inner)
    ),
    max_leaves=12,
)


@given(JSON.map(json.dumps) | st.text())
def test_any_reply_is_grades_in_range_or_a_verdict_error(text: str) -> None:
    try:
        grades = parse_verdict(text, CASE)
    except VerdictError:
        return
    assert all(0.0 <= grade.score <= 1.0 for grade in grades)
