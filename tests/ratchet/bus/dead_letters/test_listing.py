"""The order of dead letters, and pages of it: nothing twice, nothing left out, whatever changes between two pages."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ratchet.bus.dead_letters.letter import DeadLetter, Place, listing

LETTERS = st.lists(
    st.builds(
        DeadLetter,
        id=st.sampled_from("abc"),
        queue=st.none(),
        reason=st.just(""),
        attempts=st.none(),
        at=st.sampled_from([None, "2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00.5+00:00"]),
        by=st.none(),
        type=st.none(),
        message_id=st.none(),
        size=st.just(0),
        beginning=st.just(""),
    ),
    max_size=12,
)


@given(letters=LETTERS, limit=st.integers(1, 5), seed=st.integers(0, 9))
def test_the_pages_together_are_the_list_in_whatever_order_the_broker_gives_it(
    letters: list[DeadLetter], limit: int, seed: int
) -> None:
    whole, _ = listing(letters, len(letters), 0.0).page(None, 100)
    seen: list[DeadLetter] = []
    place: Place | None = None
    while True:
        Random(seed).shuffle(letters)
        page, place = listing(letters, len(letters), 0.0).page(place, limit)
        seen += page
        if place is None:
            break

    assert seen == whole
    assert sorted(seen, key=repr) == sorted(letters, key=repr)


@given(letters=LETTERS, limit=st.integers(1, 5))
def test_a_letter_that_left_takes_none_of_the_next_page_along(letters: list[DeadLetter], limit: int) -> None:
    first, place = listing(letters, len(letters), 0.0).page(None, limit)
    rest, _ = listing(letters, len(letters), 0.0).page(place, 100) if place else ([], None)
    left = [letter for letter in letters if letter.id != first[0].id] if first else []

    after, _ = listing(left, len(left), 0.0).page(place, 100) if place else ([], None)

    assert after == [letter for letter in rest if letter.id != first[0].id]
