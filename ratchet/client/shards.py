"""Several fleets on one broker as one: each task goes to the fleet that the hash of its session, or of itself, names.

So all tasks of a session are one fleet's, and the units of experiments are in one fleet each (docs/scale.md). Feedback
and trainings are left out: they go to the task's own fleet, by a client of it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Mapping
from typing import Any

from ratchet.service.errors import FleetError
from schemas.messages.feedback import Feedback
from schemas.messages.task import Task
from schemas.messages.training import TrainRequest


def shard_of(unit_id: str, namespaces: Collection[str]) -> str:
    """Return the namespace of the fleet that has this unit: a session's id, or that of a task without a session.

    It is the one at the place that the first 8 bytes of the id's SHA-256 have modulo their count, among all in order.
    """
    digest = hashlib.sha256(unit_id.encode()).digest()
    return sorted(namespaces)[int.from_bytes(digest[:8], "big") % len(namespaces)]


class ShardedLink:
    """`links`: one to each fleet, by namespace."""

    def __init__(self, links: Mapping[str, Any]) -> None:
        self._links = links

    async def send(self, message: Task | Feedback | TrainRequest) -> None:
        """Send a task to its fleet. Raises FleetError for what is not a task."""
        if not isinstance(message, Task):
            raise FleetError(f"{message.TYPE} goes to the fleet that has the task: make a client of its `namespace`")
        await self._links[shard_of(message.session_id or message.task_id, self._links.keys())].send(message)

    async def close(self) -> None:
        await asyncio.gather(*(link.close() for link in self._links.values()))
