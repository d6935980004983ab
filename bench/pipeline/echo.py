"""The bare echo: consume, publish with a confirm, ack when it came; pika's AsyncioConnection on uvloop, nothing else.

What a hop costs at least with this client. It validates nothing, retries nothing and does not reconnect. There are
three processes, as in the fleet: the front has two hops (intake and settlement), the agent and the scorer one each.
The queues have the arguments of the fleet's own. `python -m bench.pipeline.echo URL NAMESPACE ROLE`.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pika
import uvloop
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.channel import Channel

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
"""The hops of each role, as pairs of queues."""
PERSISTENT = pika.BasicProperties(delivery_mode=2, content_type="application/json", type="task.v1")


class Hop:
    """One channel: what comes off `source` goes to `target`, and is acked when the broker has confirmed it."""

    def __init__(self, channel: Channel, prefetch: int, source: str, target: str) -> None:
        self.channel = channel
        self.target = target
        self.published = 0
        self.unconfirmed: dict[int, int] = {}
        channel.confirm_delivery(self.on_confirm)
        channel.basic_qos(prefetch_count=prefetch)
        channel.basic_consume(source, self.on_message)

    def on_message(self, channel: Channel, method: Any, _properties: Any, body: bytes) -> None:
        self.published += 1
        self.unconfirmed[self.published] = method.delivery_tag
        channel.basic_publish("", self.target, body, PERSISTENT)

    def on_confirm(self, frame: Any) -> None:
        upto = frame.method.delivery_tag
        confirmed = [tag for tag in self.unconfirmed if tag <= upto] if frame.method.multiple else [upto]
        for tag in confirmed:
            self.channel.basic_ack(self.unconfirmed.pop(tag))


def declare(url: str, namespace: str) -> None:
    """Declare the five queues."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel, topology = connection.channel(), fleet_topology((AGENT,))
    for queue in QUEUES:
        channel.queue_declare(namespace + queue, durable=True, arguments=topology.queue(queue).arguments)
    connection.close()


async def serve(url: str, namespace: str, role: str) -> None:
    """Serve until the process is ended."""

    def open_hops(connection: AsyncioConnection) -> None:
        for pair in ROLES[role]:
            source, target = (namespace + queue for queue in pair)
            connection.channel(
                on_open_callback=lambda channel, source=source, target=target: Hop(
                    channel, PREFETCH[role], source, target
                )
            )

    AsyncioConnection(pika.URLParameters(url), on_open_callback=open_hops)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(*sys.argv[1:]))
