"""Answers made small enough to read, whatever is in them."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.tools.bounds import MOST_CHARACTERS, TooBig, bound_value

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=10), inner, max_size=5),
    max_leaves=60,
)


def kinds(value: Any) -> Any:
    """The shape without the sizes: of a list the shapes that occur in it."""
    if isinstance(value, dict):
        return {key: kinds(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return list
    return type(value)


def test_what_fits_is_left_alone() -> None:
    answer = {"items": [{"text": "x" * 10_000}], "next": None}

    short = bound_value(answer)

    assert (short.value, short.cut) == (answer, ())
    assert json.loads(short.text) == answer


def test_long_texts_are_cut_and_named() -> None:
    short = bound_value({"samples": [{"text": "a" * 100_000, "score": 1.0}], "state": "ok"})

    assert short.value["samples"][0]["text"] == "a" * 8_000 + "… (and 92,000 more characters)"
    assert (short.value["samples"][0]["score"], short.value["state"]) == (1.0, "ok")
    assert short.cut == ("samples[0].text",)


def test_a_long_series_is_thinned_evenly_with_its_ends() -> None:
    history = [{"units": unit, "band": {"low": -0.5, "high": 0.5, "effect": 0.25}} for unit in range(5_000)]

    short = bound_value({"history": history})

    kept = [point["units"] for point in short.value["history"]]
    assert (kept[0], kept[-1], len(kept)) == (0, 4_999, 400)
    assert {later - earlier for earlier, later in itertools.pairwise(kept)} <= {12, 13}
    assert short.cut == ("history",)


def test_the_items_of_a_page_all_stay_so_that_its_cursor_goes_on_where_it_ends() -> None:
    short = bound_value({"items": [{"response": "r" * 2_000, "n": n} for n in range(100)], "next": "abc"})

    assert [item["n"] for item in short.value["items"]] == list(range(100))
    assert short.value["next"] == "abc"


def test_a_page_that_can_not_be_made_to_fit_is_refused() -> None:
    with pytest.raises(TooBig, match="characters"):
        bound_value({"items": [{f"key{key}": key for key in range(200)} for _ in range(100)], "next": None})


@given(JSON_VALUES, st.integers(min_value=200, max_value=MOST_CHARACTERS))
def test_the_bound_holds_and_the_shape_stays(value: Any, most: int) -> None:
    try:
        short = bound_value(value, most)
    except TooBig:
        return
    assert len(short.text) <= most
    assert json.loads(short.text) == short.value
    assert kinds(short.value) == kinds(value)
