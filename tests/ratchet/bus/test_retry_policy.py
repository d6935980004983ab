"""The ladder as a table, and pauses as a property."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.bus.retry_policy import (
    AT,
    ATTEMPT,
    ATTEMPTS,
    BY,
    LONGEST_REASON,
    MAX_ATTEMPTS,
    QUEUE,
    REASON,
    RETRY_LADDER,
    Climb,
    GiveUp,
    after_failure,
    attempt_of,
    dead_letter_headers,
    pause_s,
    retry_headers,
)
from ratchet.service.errors import Reject, Retry
from tests.memory_bus import own_headers

FIVE_S, THIRTY_S, FIVE_MIN = RETRY_LADDER


@pytest.mark.parametrize(
    ("attempt", "verdict"),
    [
        (0, Climb(FIVE_S, 1)),
        (1, Climb(THIRTY_S, 2)),
        (2, Climb(FIVE_MIN, 3)),
        (3, Climb(FIVE_MIN, 4)),
        (4, Climb(FIVE_MIN, 5)),
        (5, Climb(FIVE_MIN, 6)),
        (6, Climb(FIVE_MIN, 7)),
        (7, GiveUp("still failing after 8 attempts; the last: busy", 8)),
        (8, GiveUp("still failing after 9 attempts; the last: busy", 9)),
    ],
)
def test_the_ladder(attempt: int, verdict: Climb | GiveUp) -> None:
    assert after_failure(Retry("busy"), attempt) == verdict


def test_any_error_climbs_like_a_retry() -> None:
    assert after_failure(KeyError("x"), 0) == Climb(FIVE_S, 1)


@pytest.mark.parametrize("attempt", [0, 3, 7])
def test_a_reject_never_climbs(attempt: int) -> None:
    assert after_failure(Reject("not JSON"), attempt) == GiveUp("not JSON", attempt + 1)


def test_a_reason_names_the_class_of_an_error_that_is_not_ours_to_raise() -> None:
    verdict = after_failure(ZeroDivisionError(), MAX_ATTEMPTS - 1)
    assert isinstance(verdict, GiveUp)
    assert verdict.reason.endswith("the last: ZeroDivisionError: no reason given")


@pytest.mark.parametrize(
    ("headers", "attempt"),
    [({}, 0), ({ATTEMPT: 3}, 3), ({ATTEMPT: "3"}, 0), ({ATTEMPT: -1}, 0), ({ATTEMPT: 10**12}, 0), ({ATTEMPT: None}, 0)],
)
def test_an_outsiders_attempt_header_can_do_no_harm(headers: dict[str, object], attempt: int) -> None:
    assert attempt_of(headers) == attempt


def test_the_brokers_own_headers_are_not_published_again() -> None:
    arrived = {"x-death": [{"count": 1}], "x-first-death-queue": "q", "x-delivery-count": 2, "traceparent": "t", "x": 1}
    assert own_headers(arrived) | retry_headers(2) == {"traceparent": "t", "x": 1, ATTEMPT: 2}


def test_a_publishers_copies_are_not_sent_again_with_every_retry() -> None:
    assert own_headers({"CC": ["tasks"], "BCC": ["results"], "x": 1}) == {"x": 1}


def test_a_dead_letter_says_why_from_where_how_often_when_and_by_whom() -> None:
    added = dead_letter_headers(GiveUp("bad", 3), queue="tasks", at="2026-01-02T03:04:05Z", by="agent")
    assert added == {REASON: "bad", QUEUE: "tasks", ATTEMPTS: 3, AT: "2026-01-02T03:04:05Z", BY: "agent"}


@given(st.text(max_size=3000))
def test_a_reason_is_bounded_whatever_it_quotes(text: str) -> None:
    verdict = after_failure(Reject(text), 0)
    assert isinstance(verdict, GiveUp)
    assert 0 < len(verdict.reason) <= LONGEST_REASON


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_a_pause_stays_between_half_its_start_and_its_cap(failures: int, random: float) -> None:
    assert 0.05 <= pause_s(failures, first_s=0.1, cap_s=5.0, random=random) <= 5.0


def test_pauses_double_up_to_the_cap() -> None:
    pauses = [pause_s(failures, first_s=0.1, cap_s=1.0, random=0.0) for failures in range(1, 7)]
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
