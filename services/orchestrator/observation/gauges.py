"""Gauges that a dashboard and an alert look at first, on /metrics: room on the disks, the last backup, queues."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import monotonic

from prometheus_client import Gauge

from ratchet.bus.protocol import Bus, QueueState
from ratchet.bus.topology import Topology
from ratchet.logs.names import LAST_BACKUP
from ratchet.service.errors import BusError
from services.orchestrator.clocks import now

GOOD_FOR_S = 1.0


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """`states`: by name; None where the broker can't say, as for a queue that is not there."""

    at: datetime
    states: dict[str, QueueState | None]


class QueueSnapshots:
    def __init__(self, bus: Bus, topology: Topology) -> None:
        self._bus = bus
        self._names = [queue.name for queue in topology.queues] + [rung.name for rung in topology.rungs]
        self._asking = asyncio.Lock()
        self._latest: QueueSnapshot | None = None
        self._asked_at = 0.0

    async def latest(self) -> QueueSnapshot:
        """Raises BusError if the broker says nothing of any queue."""
        async with self._asking:
            if self._latest is None or monotonic() - self._asked_at > GOOD_FOR_S:
                self._latest = await self._ask()
                self._asked_at = monotonic()
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
        return QueueSnapshot(now(), states)


free_bytes = Gauge("ratchet_disk_free_bytes", "Bytes free where a folder lies: logs, adapters.", ["folder"])
backup_made = Gauge("ratchet_backup_timestamp_seconds", "When `ratchet backup` was last done; 0 if never.")
size_bytes = Gauge("ratchet_disk_size_bytes", "Size in bytes of the disk a folder lies on.", ["folder"])


class DiskGauges:
    """Gauges of the disks the fleet writes to. On a full one it stops: nothing is acked that is not on disk."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = folders

    async def refresh(self) -> None:
        """Raises OSError for a folder that is gone."""
        if (logs := self._folders.get("logs")) is not None:
            backup_made.set(await asyncio.to_thread(_last_backup, logs))
        for name, folder in self._folders.items():
            usage = await asyncio.to_thread(shutil.disk_usage, folder)
            free_bytes.labels(name).set(usage.free)
            size_bytes.labels(name).set(usage.total)


def _last_backup(logs: Path) -> float:
    """Return when a backup of this fleet was last made, in seconds of Unix time; 0 if never."""
    try:
        return float(json.loads((logs / LAST_BACKUP).read_bytes())["made_at"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0


queue_messages = Gauge("ratchet_queue_messages", "Messages that wait in a queue.", ["queue"])
queue_consumers = Gauge("ratchet_queue_consumers", "Consumers of a queue.", ["queue"])
queue_max_bytes = Gauge(
    "ratchet_queue_max_bytes",
    "Bytes at which a queue refuses messages, as the settings say; `wire`: its name at the broker.",
    ["queue", "wire"],
)


class QueueGauges:
    """Gauges of each queue's depth, consumers and bound in bytes. Its bytes are not told over AMQP: Prometheus asks the
    broker."""

    def __init__(self, bus: Bus, topology: Topology, namespace: str) -> None:
        self._bus = bus
        self._queues = sorted(topology.names)
        self._bounds = {queue.name: queue.max_bytes for queue in topology.queues}
        self._bounds |= {rung.name: rung.max_bytes for rung in topology.rungs}
        self._namespace = namespace

    async def refresh(self) -> None:
        """Raises BusError if the broker can't say."""
        for name, most in self._bounds.items():
            queue_max_bytes.labels(name, self._namespace + name).set(most)
        for queue in self._queues:
            state = await self._bus.state(queue)
            queue_messages.labels(queue).set(state.messages)
            queue_consumers.labels(queue).set(state.consumers)
