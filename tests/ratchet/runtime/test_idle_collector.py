"""Garbage in cycles goes, also where little is allocated."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from ratchet.runtime.runner import COLLECT_EVERY_S, IdleCollector


class Link:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def nobody_else_collects() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("nobody_else_collects")
def test_a_cycle_is_gone_a_minute_later_at_the_latest() -> None:
    now = 100.0
    collector = IdleCollector(lambda: now)
    for _ in range(2):
        cycle = weakref.ref(Link())
        now += COLLECT_EVERY_S - 1
        collector.beat()
        assert cycle() is not None
        now += 1
        collector.beat()
        assert cycle() is None


@pytest.mark.usefixtures("nobody_else_collects")
def test_where_python_looks_by_itself_nothing_is_done() -> None:
    now = 100.0
    collector = IdleCollector(lambda: now)
    gc.collect(0)
    cycle = weakref.ref(Link())
    now += COLLECT_EVERY_S
    collector.beat()
    assert cycle() is not None
