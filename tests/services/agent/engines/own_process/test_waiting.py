from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from schemas.messages.work import Sampling
from services.agent.engines.engine import GenerationRequest
from services.agent.engines.own_process.child import WaitingRequests


def waiting(*sizes_and_priorities: tuple[int, int]) -> WaitingRequests:
    requests = WaitingRequests()
    for number, (samples, priority) in enumerate(sizes_and_priorities):
        requests.add(number, GenerationRequest("", Sampling(n=samples), None, priority))
    return requests


def batches(requests: WaitingRequests, max_samples: int) -> list[list[int]]:
    taken = []
    while batch := requests.batch(max_samples):
        taken.append([one.number for one in batch])
    return taken


def test_higher_priority_goes_first_then_arrival() -> None:
    assert batches(waiting((1, 0), (1, 9), (1, 0), (1, 9), (1, 5)), 2) == [[1, 3], [4, 0], [2]]


def test_nothing_overtakes_to_fill_a_gap_and_what_is_too_large_goes_alone() -> None:
    assert batches(waiting((3, 0), (2, 0), (1, 0), (9, 0), (1, 0)), 4) == [[0], [1, 2], [3], [4]]


def test_what_is_taken_back_is_in_no_batch() -> None:
    requests = waiting((1, 0), (4, 9), (1, 0))
    requests.drop(1)
    requests.drop(1)
    requests.drop(77)
    assert len(requests) == 2
    assert batches(requests, 4) == [[0, 2]]
    assert not requests


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3))), st.integers(1, 12))
def test_every_request_is_in_one_batch_that_is_not_too_large(sizes: list[tuple[int, int]], most: int) -> None:
    found = batches(waiting(*sizes), most)
    assert sorted(number for batch in found for number in batch) == list(range(len(sizes)))
    assert all(len(batch) == 1 or sum(sizes[number][0] for number in batch) <= most for batch in found)
