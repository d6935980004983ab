"""Cursors and idempotency keys: given back as they were, and nothing else is one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.http.access.roles import Caller, Role
from ratchet.http.paging import cursor_of, place_of
from ratchet.http.problem import Problem
from ratchet.http.server.idempotency import id_from_key


@given(st.text(max_size=50), st.integers())
def test_a_cursor_comes_back_as_the_place_it_was(text: str, number: int) -> None:
    assert place_of(cursor_of([text, number]), str, int) == [text, number]


@given(st.text(max_size=100))
def test_what_is_no_cursor_is_a_problem_and_nothing_else(text: str) -> None:
    with pytest.raises(Problem) as refused:
        place_of(text, str, int)

    assert refused.value.status == 422


def test_a_cursor_of_another_list_is_none_of_this() -> None:
    with pytest.raises(Problem):
        place_of(cursor_of([True]), int)
    with pytest.raises(Problem):
        place_of(cursor_of([1, 2]), int)


def test_no_cursor_is_the_first_page() -> None:
    assert place_of(None, int) is None


def test_an_id_follows_from_the_key_for_each_caller_and_route_by_itself() -> None:
    one, other = Caller("one", Role.OPERATOR), Caller("other", Role.OPERATOR)
    asked = [(one, "POST /v1/a", "k"), (other, "POST /v1/a", "k"), (one, "POST /v1/b", "k"), (one, "POST /v1/a", "l")]

    ids = [id_from_key(*each) for each in asked]

    assert len(set(ids)) == 4
    assert ids == [id_from_key(*each) for each in asked]
