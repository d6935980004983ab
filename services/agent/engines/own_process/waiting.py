"""Requests not yet in a batch: by priority, then by arrival; nothing overtakes to fill a gap. Pure."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from services.agent.engines.engine import GenerationRequest


@dataclass(order=True, slots=True)
class Waiting:
    urgency: int
    number: int
    request: GenerationRequest = field(compare=False)


class WaitingRequests:
    """Each under a number that grows with each arrival."""

    def __init__(self) -> None:
        self._heap: list[Waiting] = []
        self._numbers: set[int] = set()

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, number: int, request: GenerationRequest) -> None:
        self._numbers.add(number)
        heapq.heappush(self._heap, Waiting(-request.priority, number, request))

    def drop(self, number: int) -> None:
        """Taken back; one that is not waiting any more is no error."""
        self._numbers.discard(number)

    def batch(self, max_samples: int) -> list[Waiting]:
        """The next requests, with at most so many samples together; a single larger request is a batch of its own."""
        taken: list[Waiting] = []
        samples = 0
        while self._heap:
            first = self._heap[0]
            if first.number in self._numbers:
                samples += first.request.sampling.n
                if taken and samples > max_samples:
                    break
                taken.append(first)
                self._numbers.discard(first.number)
            heapq.heappop(self._heap)
        return taken
