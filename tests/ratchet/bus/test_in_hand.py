"""Bytes in hand are bounded, and whether work in hand gets on is a rule: as tables and properties."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.bus.in_hand import (
    DELIVERED_BYTES,
    EXPANSION,
    FEWEST,
    NEVER,
    ByteBudget,
    Progress,
    fitting_prefetch,
    weight,
)


@given(st.lists(st.integers(0, 10**6), max_size=50), st.integers(1, 10**8))
def test_a_budget_is_kept_by_whoever_is_not_alone(sizes: list[int], most: int) -> None:
    budget = ByteBudget(most)
    taken = [size for size in sizes if budget.take(size, alone=False)]
    assert sum(taken) <= most


def test_one_message_is_handled_however_large_it_is_and_what_it_gives_back_lets_others_begin() -> None:
    budget, begun = ByteBudget(10), list[str]()
    assert budget.take(1_000, alone=True)
    assert not budget.take(1, alone=False)
    budget.wait("other", lambda: begun.append("other"))

    budget.give_back(1_000)

    assert begun == ["other"]
    assert budget.take(10, alone=False)


def test_a_message_weighs_by_the_objects_in_it_and_within_bounds() -> None:
    samples = [{"text": "y" * 100} for _ in range(64)]
    assert weight(b"x" * 100) == 100 * FEWEST
    assert weight(json.dumps({"samples": samples}).encode()) == len(json.dumps({"samples": samples})) * EXPANSION
    assert weight(b'{"a":1}') == 7 * (FEWEST + 2)


@given(st.integers(1, 10_000), st.integers(0, 2**24))
def test_what_is_asked_for_fits_or_is_one(most: int, size: int) -> None:
    prefetch = fitting_prefetch(most, size)
    assert 1 <= prefetch <= most
    assert prefetch == 1 or prefetch * size <= DELIVERED_BYTES


@pytest.mark.parametrize(
    ("steps", "at", "trouble"),
    [
        ([], 1000, None),
        ([("begin", 0)], 30, None),
        ([("begin", 0)], 31, "no progress: 1 in hand, and none of them settled for 31 s"),
        ([("begin", 0), ("begin", 0), ("end", 20)], 45, None),
        ([("begin", 0), ("begin", 0), ("end", 20)], 51, "no progress: 1 in hand, and none of them settled for 31 s"),
        ([("begin", 0), ("end", 10), ("begin", 500)], 529, None),
        ([("begin", 0), ("fail", 20)], 1000, None),
        ([("begin", 0), ("begin", 0), ("fail", 20)], 31, "no progress: 1 in hand, and none of them settled for 31 s"),
        ([("begin", 0), ("step", 20)], 50, None),
        ([("begin", 0), ("step", 20)], 51, "no progress: 1 in hand, and none of them settled for 31 s"),
        ([("begin", 0), ("begin", 0), ("step", 20), ("end", 40)], 70, None),
        ([("begin", 0), ("pause", 2), ("pause", 5)], 6, None),
        ([("begin", 0), ("pause", 2), ("pause", 5)], 8, "1 in hand wait since 6 s: the disk is full"),
    ],
)
def test_no_progress_is_a_trouble_after_a_while(steps: list[tuple[str, float]], at: float, trouble: str | None) -> None:
    advanced = [NEVER]
    progress = Progress(30.0, lambda: advanced[-1])
    for step, now in steps:
        match step:
            case "step":
                advanced.append(now)
            case "begin":
                progress.begin(now)
            case "pause":
                progress.pause("work", now, "the disk is full")
            case _:
                progress.end(now, settled=step == "end")
    assert progress.trouble(at) == trouble


def test_work_that_waits_for_a_broker_or_a_disk_is_a_trouble_and_does_not_hang() -> None:
    progress = Progress(30.0)
    progress.begin(0)

    for tried in range(0, 3_600, 25):
        progress.pause("work", tried, "the disk is full")
        assert progress.stall_reason(tried + 24) is None
    assert progress.trouble(3_600) == "1 in hand wait since 3600 s: the disk is full"

    progress.resume("work")
    assert progress.stall_reason(3_606) == "no progress: 1 in hand, and none of them settled for 31 s"


def test_who_may_take_any_time_never_stalls() -> None:
    progress = Progress(None)
    progress.begin(0)
    assert progress.trouble(10**6) is None
