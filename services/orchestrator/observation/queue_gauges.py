"""Depth and consumers of every queue, on /metrics: what a dashboard and an alert look at first."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Gauge

from ratchet.bus.protocol import Bus

queue_messages = Gauge("ratchet_queue_messages", "Messages that wait in a queue.", ["queue"])
queue_consumers = Gauge("ratchet_queue_consumers", "Consumers of a queue.", ["queue"])


class QueueGauges:
    def __init__(self, bus: Bus, queues: Iterable[str]) -> None:
        self._bus = bus
        self._queues = sorted(queues)

    async def refresh(self) -> None:
        """Raises BusError if the broker can't say."""
        for queue in self._queues:
            state = await self._bus.state(queue)
            queue_messages.labels(queue).set(state.messages)
            queue_consumers.labels(queue).set(state.consumers)
