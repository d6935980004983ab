"""Asks the broker how many messages wait in each queue now and who consumes it, and publishes to one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pika
from pika.adapters.blocking_connection import BlockingConnection
from pika.exceptions import ChannelClosedByBroker, NackError
from pika.spec import BasicProperties

from ratchet.bus.amqp.short_connection import open_connection
from ratchet.bus.topology import EXCHANGE, Topology
from schemas.messages.base import Message
from services.cli.fleet.folder import FROM_ELSEWHERE, FleetAccess
from services.cli.terminal import CommandError

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


def publish(access: FleetAccess, queue: str, message: Message, message_id: str) -> None:
    """Returns once the broker has it. Raises BusError, CommandError where no fleet ever was."""
    properties = BasicProperties(
        content_type="application/json",
        delivery_mode=pika.DeliveryMode.Persistent.value,
        type=message.TYPE,
        message_id=message_id,
    )
    with open_connection(access.amqp_url) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        try:
            channel.basic_publish(access.namespace + EXCHANGE, access.namespace + queue, message.encode(), properties)
        except ChannelClosedByBroker as error:
            raise CommandError(
                f"the broker refused it ({error.reply_text}): was the fleet ever up here? ratchet up; {FROM_ELSEWHERE}"
            ) from None
        except NackError:
            raise CommandError(f"the broker refused it: is the queue {queue!r} full? ratchet watch") from None
