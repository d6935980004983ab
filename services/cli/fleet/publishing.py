"""A message from the command line, published as any application would."""

from __future__ import annotations

import pika
from pika.exceptions import ChannelClosedByBroker, NackError
from pika.spec import BasicProperties

from ratchet.bus.amqp.short_connection import open_connection
from ratchet.bus.topology import EXCHANGE
from schemas.messages.base import Message
from services.cli.fleet.folder import FROM_ELSEWHERE, FleetAccess
from services.cli.terminal import CommandError


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
