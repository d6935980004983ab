"""Pieces of an answer, and which of a group are shown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from schemas.messages.work import Sampling
from schemas.records.interaction import Interaction
from services.orchestrator.api.chat_answer import MOST_DELTAS, Wanted, completion, pieces
from tests.services.trainer.making_logs import line


@given(st.text(max_size=300))
def test_the_pieces_are_the_text(text: str) -> None:
    assert "".join(pieces(text)) == text
    assert "" not in list(pieces(text))


def test_a_long_answer_comes_in_a_bounded_number_of_pieces() -> None:
    assert len(list(pieces("word " * 12_345))) <= 2 * MOST_DELTAS


def test_pieces_are_words() -> None:
    assert list(pieces("  two words\n")) == ["  two", " words", "\n"]


def test_what_a_program_printed_is_told_as_it_was_scored_and_an_answer_of_the_model_ends_before_its_stop_string() -> (
    None
):
    told = []
    for program in (None, "mine"):
        given = {"response": "Result:\n42", "score": 1.0, "finish_reason": "length", "program": program}
        one = Interaction.decode(line("t", 0, group_size=1, sampling=Sampling(n=1, stop=("\n",)), **given))
        (choice,) = completion([one], Wanted()).choices
        told.append((choice.message.content, choice.finish_reason))

    assert told == [("Result:", "stop"), ("Result:\n42", "length")]
