"""Stop strings in tokens that come: which are kept, and what is told."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from ratchet.conversation.stops import Stops, cut_at_stop, select_for_engine

PIECES = ("a", "b", "ab", "ba.", "", "é")


def text_of(ids: Sequence[int]) -> str:
    return "".join(PIECES[one] for one in ids)


@given(
    ids=st.lists(st.integers(0, len(PIECES) - 1), max_size=20),
    words=st.lists(st.text("ab.é", min_size=1, max_size=4), min_size=1, max_size=4),
    looks=st.lists(st.integers(1, 5), max_size=20),
)
def test_kept_are_the_first_tokens_whose_text_holds_a_string_however_often_it_is_looked(
    ids: list[int], words: list[str], looks: list[int]
) -> None:
    stops, at, found = Stops(words, text_of), 0, None
    for size in [*looks, len(ids)]:
        at = min(at + size, len(ids))
        found = stops.count(ids[:at])
    kept = (n for n in range(1, len(ids) + 1) if any(word in text_of(ids[:n]) for word in words))

    assert found == next(kept, None)
    told, word = cut_at_stop(text_of(ids[:found]), words)
    assert (word is None) == (found is None) and not any(one in told for one in words)


def test_half_a_character_is_no_string_until_it_is_whole() -> None:
    raw = "aé\n".encode()
    stops = Stops(("é",), lambda ids: bytes(ids).decode(errors="replace"))

    assert [stops.count(raw[:n]) for n in range(1, 5)] == [None, None, 3, 3]


def test_an_engine_is_told_what_its_request_holds() -> None:
    assert (select_for_engine(("a",) * 20), select_for_engine(())) == (("a",) * 16, ())
