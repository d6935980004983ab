"""Depth and consumers of every queue and rung, asked of the broker at most once a second, whoever asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from ratchet.bus.protocol import Bus, QueueState
from ratchet.bus.topology import Topology
from ratchet.service.errors import BusError

GOOD_FOR_S = 1.0


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """`states`: by name; None where the broker can't say, as for a queue that is not there."""

    at: datetime
    states: dict[str, QueueState | None]


class QueueSnapshots:
    def __init__(
        self, bus: Bus, topology: Topology, *, clock: Callable[[], datetime], seconds: Callable[[], float]
    ) -> None:
        self._bus = bus
        self._names = [queue.name for queue in topology.queues] + [rung.name for rung in topology.rungs]
        self._clock = clock
        self._seconds = seconds
        self._asking = asyncio.Lock()
        self._latest: QueueSnapshot | None = None
        self._asked_at = 0.0

    async def latest(self) -> QueueSnapshot:
        """Raises BusError if the broker says nothing of any queue."""
        async with self._asking:
            if self._latest is None or self._seconds() - self._asked_at > GOOD_FOR_S:
                self._latest = await self._ask()
                self._asked_at = self._seconds()
            return self._latest

    async def _ask(self) -> QueueSnapshot:
        said = await asyncio.gather(*map(self._bus.state, self._names), return_exceptions=True)
        for answer in said:
            if isinstance(answer, BaseException) and not isinstance(answer, BusError):
                raise answer
        if all(isinstance(answer, BusError) for answer in said):
            raise BusError(f"the broker can't say how its queues stand: {said[0]}")
        states = {
            name: answer if isinstance(answer, QueueState) else None
            for name, answer in zip(self._names, said, strict=True)
        }
        return QueueSnapshot(self._clock(), states)
