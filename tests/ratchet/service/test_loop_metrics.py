"""Our metrics show what prometheus-client's own show."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from ratchet.service.metrics import LoopCounter, LoopHistogram

BUCKETS = (0.1, 0.5, 1, 10)


def shown(registry: CollectorRegistry) -> list[str]:
    """The exposition without the `_created` series, which ours leave out."""
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([*BUCKETS, 0, 0.25, 3, 99]))))
def test_a_histogram_shows_what_prometheus_own_shows(observed: list[tuple[str, float]]) -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    their = Histogram("seconds", "Of a test.", ["who"], buckets=BUCKETS, registry=theirs)
    our = LoopHistogram("seconds", "Of a test.", ["who"], buckets=BUCKETS, registry=ours)
    for who, value in observed:
        their.labels(who).observe(value)
        our.labels(who).observe(value)
    assert shown(ours) == shown(theirs)


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([1, 0, 0.25, 3]))))
@pytest.mark.parametrize("name", ["tasks", "tasks_total"])
def test_a_counter_shows_what_prometheus_own_shows(name: str, counted: list[tuple[str, float]]) -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    their = Counter(name, "Of a test.", ["who"], registry=theirs)
    our = LoopCounter(name, "Of a test.", ["who"], registry=ours)
    for who, amount in counted:
        their.labels(who).inc(amount)
        our.labels(who).inc(amount)
    assert shown(ours) == shown(theirs)


def test_without_labels_they_are_shown_before_anything_is_counted() -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    Histogram("seconds", "Of a test.", buckets=BUCKETS, registry=theirs)
    LoopHistogram("seconds", "Of a test.", buckets=BUCKETS, registry=ours)
    Counter("tasks", "Of a test.", registry=theirs)
    LoopCounter("tasks", "Of a test.", registry=ours)
    assert shown(ours) == shown(theirs)


def test_a_name_is_taken_once() -> None:
    registry = CollectorRegistry()
    LoopHistogram("seconds", "Of a test.", buckets=BUCKETS, registry=registry)
    LoopCounter("tasks", "Of a test.", registry=registry)
    for name in ("seconds", "tasks_total"):
        with pytest.raises(ValueError, match="Duplicated"):
            Histogram(name, "Of another.", registry=registry)


def test_a_wrong_number_of_labels_is_refused() -> None:
    counter = LoopCounter("tasks", "Of a test.", ["who"], registry=CollectorRegistry())
    with pytest.raises(ValueError, match="has the labels who"):
        counter.labels("a", "b")
