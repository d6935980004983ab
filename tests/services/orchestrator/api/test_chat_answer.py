"""Pieces of an answer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.orchestrator.api.chat_answer import MOST_DELTAS, pieces


@given(st.text(max_size=300))
def test_the_pieces_are_the_text(text: str) -> None:
    assert "".join(pieces(text)) == text
    assert "" not in list(pieces(text))


def test_a_long_answer_comes_in_a_bounded_number_of_pieces() -> None:
    assert len(list(pieces("word " * 12_345))) <= 2 * MOST_DELTAS


def test_pieces_are_words() -> None:
    assert list(pieces("  two words\n")) == ["  two", " words", "\n"]
