"""Tasks that were cancelled, as agents and runners hear of it: which they are, and what is to end because of it.

The newest ids are remembered, for a Work may come after the word that its task was cancelled. What came before this
process listened is not known: that Work is answered in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from ratchet.bus.protocol import Bus, Delivery
from ratchet.bus.topology import cancellations_topic
from ratchet.service.telemetry import Log
from schemas.messages.base import DecodeError
from schemas.messages.task import TaskCancelled

REMEMBERED = 10_000
"""Ids of cancelled tasks."""
TASK_CANCELLED = "its task was cancelled"

log = Log("cancellations")


class Cancellations:
    """Use it from one event loop."""

    def __init__(self, hear: Callable[[str], None] = lambda _: None) -> None:
        """`hear` is told the id of each task, once it is cancelled."""
        self._hear = hear
        self._cancelled: dict[str, None] = {}
        self._to_end: dict[str, list[Callable[[], None]]] = {}

    async def listen(self, bus: Bus, agents: Iterable[str]) -> None:
        """Hear of the tasks of these agents from now on."""
        for agent_id in agents:
            await bus.listen(cancellations_topic(agent_id), self.receive)

    def receive(self, delivery: Delivery) -> None:
        try:
            task_id = TaskCancelled.decode(delivery.body).task_id
        except DecodeError as error:
            log.error("cancellation-unreadable", error.reason)
            return
        self._cancelled[task_id] = None
        if len(self._cancelled) > REMEMBERED:
            del self._cancelled[next(iter(self._cancelled))]
        for end in self._to_end.get(task_id, ()):
            end()
        self._hear(task_id)

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._cancelled

    @contextmanager
    def ending(self, task_id: str, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` when the task is cancelled within the block, and at once if it was before."""
        if task_id in self:
            end()
        ends = self._to_end.setdefault(task_id, [])
        ends.append(end)
        try:
            yield
        finally:
            ends.remove(end)
            if not ends:
                self._to_end.pop(task_id, None)
