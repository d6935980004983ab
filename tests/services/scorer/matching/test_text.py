from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.scorer.matching.text import equal_normalised, exact, normalise, token_f1


@pytest.mark.parametrize(
    ("answer", "reference", "score"),
    [
        ("abcd", "abcd", 1.0),
        ("abcd\n", "abcd", 1.0),
        ("Abcd", "abcd", 0.0),
        ("abcd.", "abcd", 0.0),
        ("", "", 1.0),
    ],
)
def test_exact(answer: str, reference: str, score: float) -> None:
    assert exact(answer, reference) == score


@pytest.mark.parametrize(
    ("answer", "reference", "score"),
    [
        ("  The  Answer.\n", "the answer", 1.0),
        ("**Paris**", "paris", 1.0),
        ("ﬁne", "fine", 1.0),
        ("STRASSE", "straße", 1.0),
        ("café", "cafe\u0301", 1.0),
        ("\u201cyes\u201d!", "yes", 1.0),
        ("-5", "5", 0.0),
        ("5%", "5", 0.0),
        ("C", "C++", 0.0),
        ("", "{}", 0.0),
        ("...", "!!!", 0.0),
        ("a b", "ab", 0.0),
    ],
)
def test_normalised(answer: str, reference: str, score: float) -> None:
    assert equal_normalised(answer, reference) == score


@pytest.mark.parametrize(
    ("answer", "reference", "score"),
    [
        ("The cat sat.", "a cat sat", 1.0),
        ("cat", "cat sat", 2 / 3),
        ("cat cat", "cat", 2 / 3),
        ("dog", "cat", 0.0),
        ("", "cat", 0.0),
        ("?", "?", 1.0),
        ("?", "!", 0.0),
        ("the", "the", 1.0),
    ],
)
def test_token_f1(answer: str, reference: str, score: float) -> None:
    assert token_f1(answer, reference) == pytest.approx(score)


@given(st.text())
@example("\u0345")
@example("\u1e9b\u0323")
@example("\u03d4\u0301")
def test_normalising_twice_changes_nothing_more(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once
    assert unicodedata.is_normalized("NFKC", once)


@given(st.text(), st.text())
def test_every_comparison_is_a_symmetric_score(answer: str, reference: str) -> None:
    for compare in (exact, equal_normalised, token_f1):
        score = compare(answer, reference)
        assert 0.0 <= score <= 1.0
        assert score == compare(reference, answer)
        assert compare(answer, answer) == 1.0
