from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.scorer.verdict import answer_ids, derive_nonce, in_request_order, shown_order


@given(task_id=st.text(), count=st.integers(1, 20), turn=st.integers(0, 30))
def test_the_order_shown_is_a_permutation_settled_by_the_task_and_undone_again(
    task_id: str, count: int, turn: int
) -> None:
    order = shown_order(task_id, count, turn)
    assert sorted(order) == list(range(count))
    assert order == shown_order(task_id, count, turn)
    assert in_request_order([f"answer {index}" for index in order], order) == [f"answer {i}" for i in range(count)]


def test_over_as_many_turns_as_answers_each_stands_in_each_place_once() -> None:
    orders = [shown_order("t-1", 5, turn) for turn in range(5)]
    for place in range(5):
        assert sorted(order[place] for order in orders) == list(range(5))


def test_over_tasks_the_first_answer_stands_in_every_place_about_as_often() -> None:
    places = [shown_order(f"task {n}", 4, 0).index(0) for n in range(2000)]
    assert all(400 < places.count(place) < 600 for place in range(4))


def test_a_nonce_follows_from_key_and_content() -> None:
    nonce = derive_nonce(b"key", "t-1", "prompt", ["a"], 0)
    assert nonce == derive_nonce(b"key", "t-1", "prompt", ["a"], 0)
    assert len(nonce) == 32
    others = [
        derive_nonce(b"other", "t-1", "prompt", ["a"], 0),
        derive_nonce(b"key", "t-1", "prompt", ["b"], 0),
        derive_nonce(b"key", "t-1", "prompt", ["a"], 1),
    ]
    assert nonce not in others


def test_ids_are_distinct() -> None:
    assert len(set(answer_ids("nonce", 64))) == 64
