from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.service.errors import ScorerError
from services.scorer.matching.json_grade import FLAW, MAX_NODES, grade, schema_of
from services.scorer.matching.json_values import MAX_DEPTH, NoJson, compare, find
from tests.quick import rounds

ORDER = '{"item": "lamp", "qty": 2, "paid": true, "to": {"city": "Bern"}}'
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"item": {"type": "string"}, "qty": {"$ref": "#/$defs/count"}},
        "required": ["item", "qty"],
        "additionalProperties": False,
        "$defs": {"count": {"type": "integer", "minimum": 1}},
    }
)


@pytest.mark.parametrize(
    ("answer", "score", "reason"),
    [
        (ORDER, 1.0, "4 of 4 fields right"),
        ('{"to":{"city":"Bern"},"paid":true,"qty":2.0,"item":"lamp"}', 1.0, "4 of 4"),
        (ORDER.replace("2", "3"), 3 / 4, "wrong: /qty"),
        (ORDER.replace('"qty": 2, ', ""), 3 / 4, "missing: /qty"),
        (ORDER.replace("{", '{"note": "", ', 1), 4 / 5, "extra: /note"),
        (ORDER.replace("true", "1"), 3 / 4, "wrong: /paid"),
        (ORDER.replace('{"city": "Bern"}', '"Bern"'), 3 / 5, "missing: /to/city; extra: /to"),
        (f"```json\n{ORDER}\n```", FLAW, "a fence or text around"),
        (f"Sure [here]: {ORDER}. Anything else?", FLAW, "a fence or text around"),
        (f"{ORDER}\n{ORDER}", FLAW, "a fence or text around"),
        ("[]", 0.0, "0 of 4 fields right"),
        ("", 0.0, "the answer is empty"),
        ("two lamps", 0.0, "no JSON"),
        (ORDER[:-1], 0.0, "no JSON"),
    ],
)
def test_an_answer_is_graded_by_its_share_of_right_fields(answer: str, score: float, reason: str) -> None:
    graded = grade(answer, ORDER, None)
    assert graded.score == pytest.approx(score)
    assert reason in graded.reason


@pytest.mark.parametrize(
    ("answer", "score", "reason"),
    [
        ('{"item": "lamp", "qty": 2}', 1.0, "as the schema asks"),
        ('{"item": "lamp", "qty": 0}', FLAW / 2, "/qty"),
        ('{"item": "lamp"}', FLAW / 2, "required"),
        ('{"item": "lamp", "qty": 2, "x": 1}', FLAW * 2 / 3, "Additional properties"),
        ("[]", 0.0, "not of type"),
    ],
)
def test_a_schema_alone_grades_too(answer: str, score: float, reason: str) -> None:
    graded = grade(answer, None, SCHEMA)
    assert graded.score == pytest.approx(score)
    assert reason in graded.reason


def test_what_is_right_and_not_as_the_schema_asks_keeps_half() -> None:
    assert grade('{"item": "lamp", "qty": 0}', '{"item": "lamp", "qty": 0}', SCHEMA).score == FLAW


def test_criteria_for_a_judge_do_not_disturb_a_reference_and_are_no_way_to_grade_alone() -> None:
    assert grade(ORDER, ORDER, "Be brief.").score == 1.0
    with pytest.raises(ScorerError, match="neither a reference nor a JSON Schema"):
        grade(ORDER, None, "Be brief.")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ('{"a": NaN}', "NaN is no JSON"),
        ('{"a": -Infinity}', "Infinity is no JSON"),
        ('{"a": 1e999}', "too large"),
        ('{"a": ' + "9" * 401 + "}", "401 digits"),
        ('{"a": 1, "b": {}, "a": 2}', "'a' is there twice"),
        ("[" * 40 + "]" * 40, f"deeper than {MAX_DEPTH}"),
        ("[" * 50_000 + "]" * 50_000, f"deeper than {MAX_DEPTH}"),
        ("[" + "1," * 5_000 + "1]", "more than 5,000 fields"),
        (" x" * 60_000, "119,999 characters"),
    ],
)
def test_what_readers_differ_on_and_what_could_exhaust_us_is_no_json(answer: str, reason: str) -> None:
    graded = grade(answer, "{}", None)
    assert graded.score == 0.0
    assert reason in graded.reason


def test_of_what_is_refused_no_part_is_taken() -> None:
    with pytest.raises(NoJson, match="twice"):
        find('{"a": 1, "a": {"b": 1}}')
    with pytest.raises(NoJson, match="no JSON"):
        find('{"a": {"b": 1}, "c": [')


@pytest.mark.parametrize(
    ("criteria", "reason"),
    [
        ("{", "no JSON Schema: no JSON"),
        ('{"type": "text"}', "no JSON Schema"),
        ('{"pattern": "(?=a)"}', "no JSON Schema"),
        ('{"pattern": "(?:(?:a{1000}){1000}){1000}"}', "no JSON Schema"),
        ('{"$ref": "https://example.com/order.json"}', "nothing is fetched"),
        ('{"$ref": "file:///etc/passwd"}', "nothing is fetched"),
        ('{"$ref": "#/$defs/none"}', "names nothing"),
        ('{"$ref": "#"}', "contains itself"),
        ('{"items": {"$dynamicRef": "#x"}}', "dynamicRef can't be used"),
        ('{"properties": {"$id": {"$ref": "#"}}}', "contains itself"),
    ],
)
def test_a_schema_that_can_not_be_used_makes_the_task_unscorable(criteria: str, reason: str) -> None:
    with pytest.raises(ScorerError, match=reason):
        grade("{}", None, criteria)


def test_names_that_are_keywords_elsewhere_are_names() -> None:
    schema = {
        "properties": {"default": {"$ref": "#/$defs/n"}, "$id": {"type": "string"}},
        "$defs": {"n": {"type": "null"}},
    }
    assert schema_of(json.dumps(schema)).fault({"default": None, "$id": "x"}) is None
    assert schema_of(json.dumps(schema)).fault({"default": 1}) is not None


def test_a_reference_beside_other_keywords_counts_with_them() -> None:
    schema = schema_of('{"$ref": "#/$defs/n", "maximum": 3, "$defs": {"n": {"minimum": 1}}}')
    assert [schema.fault(value) is None for value in (0, 2, 4)] == [False, True, False]


def test_schemas_and_patterns_made_to_take_for_ever_are_answered_soon() -> None:
    names = {
        f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}]}]}
        for n in range(40)
    }
    began = time.process_time()
    with pytest.raises(ScorerError, match=f"{MAX_NODES:,} parts"):
        grade("1", None, json.dumps({"$ref": "#/$defs/d0", "$defs": names | {"d40": {"type": "string"}}}))
    grade(json.dumps("a" * 50_000 + "!"), None, '{"pattern": "^(a+)+$"}')
    grade("```x\n" * 19_000, "{}", None)
    grade("{[" * 49_000, "{}", None)
    assert time.process_time() - began < 2


def test_half_a_surrogate_pair_is_no_crash() -> None:
    graded = grade(
        '{"\\ud800": "\\udfff"}', '{"a": 1}', '{"type": "object", "additionalProperties": {"type": "string"}}'
    )
    assert graded.score == 0.0


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(JSON_VALUES, JSON_VALUES)
def test_a_value_is_wholly_right_against_itself_and_a_share_is_the_same_both_ways(one: object, other: object) -> None:
    written = json.dumps(one)
    assert grade(written, written, None).score == 1.0
    assert 0 <= compare(one, other).score == compare(other, one).score <= 1


@settings(max_examples=rounds(200))
@given(
    st.text(max_size=60) | st.text('{}[]",:0123456789.eE-+`\n truefalsn', max_size=60),
    st.text('{}[]":,$ref#/a1', max_size=40),
)
def test_any_text_is_graded_or_the_task_is_unscorable(answer: str, criteria: str) -> None:
    try:
        assert 0.0 <= grade(answer, '{"a": 1}', criteria).score <= 1.0
    except ScorerError as error:
        assert str(error)
