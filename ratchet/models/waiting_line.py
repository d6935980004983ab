"""What waits to be in a batch: by priority, then by arrival; nothing overtakes to fill a gap. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(order=True, slots=True)
class _Place(Generic[T]):
    urgency: int
    arrival: int
    size: int = field(compare=False)
    item: T = field(compare=False)


class WaitingLine(Generic[T]):
    """`given_up` says of an item that nobody waits for it any more: it is passed over."""

    def __init__(self, given_up: Callable[[T], bool]) -> None:
        self._given_up = given_up
        self._heap: list[_Place[T]] = []
        self._arrivals = 0

    def __iter__(self) -> Iterator[T]:
        """In no order."""
        return (place.item for place in self._heap if not self._given_up(place.item))

    def add(self, item: T, size: int, priority: int = 0) -> None:
        """The higher priority goes first."""
        heapq.heappush(self._heap, _Place(-priority, self._arrivals, size, item))
        self._arrivals += 1

    def batch(self, max_size: int) -> list[T]:
        """The next items, whose sizes add up to at most that; a single larger one is a batch of its own."""
        taken: list[T] = []
        size = 0
        while self._heap:
            first = self._heap[0]
            if not self._given_up(first.item):
                size += first.size
                if taken and size > max_size:
                    break
                taken.append(first.item)
            heapq.heappop(self._heap)
        return taken
