"""The hops every contestant does, and the processes that do them: tasks → work → responses → rewards → results.

Three processes, as in the fleet: the front has two hops (intake and settlement), the agent and the scorer one each.
The queues have the arguments of the fleet's own. It knows no client library but the one that declares the queues.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pika

from ratchet.bus.topology import RESPONSES, RESULTS, REWARDS, TASKS, fleet_topology, work_queue

AGENT = "small"
WORK = work_queue(AGENT)
QUEUES = (TASKS, WORK, RESPONSES, REWARDS, RESULTS)
PREFETCH = {"front": 512, "agent": 64, "scorer": 128}
"""Prefetch of each role, for each of its queues: the fleet's own defaults."""

ROLES: dict[str, tuple[tuple[str, str], ...]] = {
    "front": ((TASKS, WORK), (REWARDS, RESULTS)),
    "agent": ((WORK, RESPONSES),),
    "scorer": ((RESPONSES, REWARDS),),
}

URL_VARIABLE = "BENCH_AMQP_URL"
NAMESPACE_VARIABLE = "BENCH_NAMESPACE"
ROLE_VARIABLE = "BENCH_ROLE"


@dataclass(frozen=True, slots=True)
class Wiring:
    """The settings of a worker process, from its environment."""

    url: str
    namespace: str
    role: str

    @classmethod
    def read(cls) -> Wiring:
        return cls(os.environ[URL_VARIABLE], os.environ[NAMESPACE_VARIABLE], os.environ.get(ROLE_VARIABLE, ""))

    @property
    def hops(self) -> tuple[tuple[str, str], ...]:
        """Pairs of queues, from and to, as they are named on the broker."""
        return tuple((self.namespace + source, self.namespace + target) for source, target in ROLES[self.role])

    @property
    def prefetch(self) -> int:
        return PREFETCH[self.role]

    def environment(self) -> dict[str, str]:
        return {URL_VARIABLE: self.url, NAMESPACE_VARIABLE: self.namespace, ROLE_VARIABLE: self.role}


def arguments(queue: str) -> dict[str, Any]:
    """The arguments the fleet declares this queue with (`queue` without a namespace)."""
    return fleet_topology((AGENT,)).queue(queue).arguments


def declare(url: str, namespace: str) -> None:
    """Declare the five queues of one contestant."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    for queue in QUEUES:
        channel.queue_declare(namespace + queue, durable=True, arguments=arguments(queue))
    connection.close()
