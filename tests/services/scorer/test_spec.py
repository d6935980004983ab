from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.service.errors import ScorerError
from services.scorer.spec import WITHOUT_REFERENCE, Part, parse_spec
from services.scorer.strategies.installed import SCORERS


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("likelihood", [Part("likelihood", "", 1.0)]),
        (" verifier:exact ", [Part("verifier", "exact", 1.0)]),
        ("0.5*verifier:exact", [Part("verifier", "exact", 1.0)]),
        ("0.7*verifier:exact + 0.3*judge:absolute", [Part("verifier", "exact", 0.7), Part("judge", "absolute", 0.3)]),
        ("3*verifier:exact+1 * likelihood", [Part("verifier", "exact", 0.75), Part("likelihood", "", 0.25)]),
        ("verifier:exact + likelihood", [Part("verifier", "exact", 0.5), Part("likelihood", "", 0.5)]),
        ("python:my_package.scores:polite", [Part("python", "my_package.scores:polite", 1.0)]),
    ],
)
def test_a_specification_names_its_parts(text: str, parts: list[Part]) -> None:
    assert list(parse_spec(text).parts) == parts


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "'' is not `name`"),
        ("verifier:", "'verifier:' is not `name`"),
        ("verifier:exact +", "'' is not `name`"),
        ("0.7 verifier:exact", "'0.7 verifier:exact' is not `name`"),
        ("-1*verifier:exact", "'-1*verifier:exact' is not `name`"),
        ("0*verifier:exact", "greater than 0"),
        ("0.7*verifier:exact + judge:absolute", "give all of them one"),
        ("verifier:exact + verifier:exact", "named twice"),
        ("verifier:exact and verifier:exact", "named twice"),
        ("verifier:exact and judge else likelihood", "only one scorer can decide"),
        ("verifier:exact + likelihood and judge", "one scorer, not a sum"),
        ("tokens:4000", "by its cost alone"),
        ("tokens:4000 + time:60", "by its cost alone"),
        ("verifier:exact else tokens:4000", "by its cost alone"),
        ("tokens:4000 else verifier:exact", "by its cost alone"),
    ],
)
def test_what_can_not_be_read_is_named_with_an_example(text: str, fault: str) -> None:
    with pytest.raises(ScorerError) as caught:
        parse_spec(text)
    assert fault in str(caught.value)
    assert "verifier:normalised" in str(caught.value)


@pytest.mark.parametrize("text", ["7*verifier:exact+3*likelihood", "0.70 * verifier:exact + .3*likelihood"])
def test_one_scorer_has_one_canonical_text(text: str) -> None:
    assert parse_spec(text).text == "0.7*verifier:exact + 0.3*likelihood"


def test_one_scorer_may_decide_before_the_others() -> None:
    spec = parse_spec("verifier:exact  and 7*judge + 3*likelihood")
    assert (spec.first, spec.rule) == (Part("verifier", "exact", 1.0), "and")
    assert [part.text for part in spec.strategies] == ["verifier:exact", "judge", "likelihood"]
    assert spec.text == "verifier:exact and 0.7*judge + 0.3*likelihood"


@given(st.text(max_size=80) | st.text("0.7*verifier:exact + ", max_size=80))
def test_any_text_is_a_specification_or_a_scorer_error(text: str) -> None:
    try:
        spec = parse_spec(text)
    except ScorerError:
        return
    assert sum(part.weight for part in spec.parts) == pytest.approx(1.0)
    assert parse_spec(spec.text).text == spec.text


@pytest.mark.parametrize(
    "text", ["tests and tokens:4000", "0.9*tests + 0.1*tokens:4000", "verifier:exact else 2*judge + 1*time:60"]
)
def test_cost_stands_beside_what_judges(text: str) -> None:
    assert any(part.is_cost for part in parse_spec(text).strategies)


@pytest.mark.parametrize(
    ("text", "judging"),
    [
        ("tests", "tests"),
        ("0.9*tests + 0.1*tokens:4000", "tests"),
        ("0.6*tests + 0.2*style + 0.2*time:60", "0.75*tests + 0.25*style"),
        ("tests and tokens:4000", "tests"),
        ("tokens:4000 and tests", "tests"),
        ("time:5 and 0.5*tests + 0.5*tokens:9", "tests"),
        ("verifier:exact else 0.5*judge + 0.5*tokens:9", "verifier:exact else judge"),
    ],
)
def test_without_its_cost_a_scorer_is_what_judges(text: str, judging: str) -> None:
    spec = parse_spec(text).judging

    assert spec.text == judging
    assert sum(part.weight for part in spec.parts) == pytest.approx(1)


@pytest.mark.parametrize(
    ("text", "looks"),
    [
        ("likelihood", False),
        ("0.9*likelihood + 0.1*tokens:400", False),
        ("0.5*likelihood + 0.5*verifier:exact", True),
        ("verifier:exact else likelihood", True),
        ("somebody_s_own", True),
    ],
)
def test_a_specification_says_whether_anything_in_it_looks_at_references(text: str, looks: bool) -> None:
    assert parse_spec(text).looks_at_references is looks
    assert SCORERS.names >= WITHOUT_REFERENCE
