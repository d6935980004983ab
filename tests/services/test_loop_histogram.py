"""Our histogram shows what prometheus-client's own shows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from services.loop_histogram import LoopHistogram

BUCKETS = (0.1, 0.5, 1, 10)


def shown(registry: CollectorRegistry) -> list[str]:
    """The exposition without the `_created` series, which ours leaves out."""
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([*BUCKETS, 0, 0.25, 3, 99]))))
def test_it_shows_what_prometheus_own_histogram_shows(observed: list[tuple[str, float]]) -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    their = Histogram("seconds", "Of a test.", ["who"], buckets=BUCKETS, registry=theirs)
    our = LoopHistogram("seconds", "Of a test.", ["who"], buckets=BUCKETS, registry=ours)
    for who, value in observed:
        their.labels(who).observe(value)
        our.labels(who).observe(value)
    assert shown(ours) == shown(theirs)


def test_without_labels_it_is_shown_before_anything_is_observed() -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    Histogram("seconds", "Of a test.", buckets=BUCKETS, registry=theirs)
    LoopHistogram("seconds", "Of a test.", buckets=BUCKETS, registry=ours)
    assert shown(ours) == shown(theirs)


def test_a_name_is_taken_once() -> None:
    registry = CollectorRegistry()
    LoopHistogram("seconds", "Of a test.", buckets=BUCKETS, registry=registry)
    with pytest.raises(ValueError, match="Duplicated"):
        Histogram("seconds", "Of another.", registry=registry)


def test_a_wrong_number_of_labels_is_refused() -> None:
    histogram = LoopHistogram("seconds", "Of a test.", ["who"], buckets=BUCKETS, registry=CollectorRegistry())
    with pytest.raises(ValueError, match="has the labels who"):
        histogram.labels("a", "b")
