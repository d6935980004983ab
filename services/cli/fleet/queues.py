"""Asks the broker how many messages wait in each queue now and who consumes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pika.adapters.blocking_connection import BlockingConnection
from pika.exceptions import ChannelClosedByBroker

from ratchet.bus.topology import Topology

NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """`messages` are ready for delivery (those in hand are not counted); None: there is no such queue."""

    name: str
    messages: int | None
    consumers: int = 0


def queue_depths(connection: BlockingConnection, topology: Topology, namespace: str) -> list[QueueDepth]:
    """Every queue of the topology, the retry ladder last."""
    names = [queue.name for queue in topology.queues] + [rung.name for rung in topology.rungs]
    return list(_ask(connection, names, namespace))


def _ask(connection: BlockingConnection, names: Iterable[str], namespace: str) -> Iterable[QueueDepth]:
    channel = connection.channel()
    for name in names:
        try:
            said = channel.queue_declare(namespace + name, passive=True).method
            yield QueueDepth(name, said.message_count, said.consumer_count)
        except ChannelClosedByBroker as error:
            if error.reply_code != NOT_FOUND:
                raise
            channel = connection.channel()
            yield QueueDepth(name, None)
    channel.close()
