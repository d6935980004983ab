"""The requests a child was asked and has not begun, each under its number, until it is taken or taken back. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ratchet.models.waiting_line import WaitingLine
from services.agent.engines.engine import GenerationRequest


@dataclass(frozen=True, slots=True)
class Waiting:
    number: int
    request: GenerationRequest


class WaitingRequests:
    """By priority, then in the order they were added."""

    def __init__(self) -> None:
        self._numbers: set[int] = set()
        self._line: WaitingLine[Waiting] = WaitingLine(lambda one: one.number not in self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, number: int, request: GenerationRequest) -> None:
        self._numbers.add(number)
        self._line.add(Waiting(number, request), request.sampling.n, request.priority)

    def drop(self, number: int) -> None:
        """Taken back; one that is not waiting any more is no error."""
        self._numbers.discard(number)

    def batch(self, max_samples: int) -> list[Waiting]:
        """The next requests, with at most so many samples together; a single larger request is a batch of its own."""
        taken = self._line.batch(max_samples)
        self._numbers.difference_update(one.number for one in taken)
        return taken
