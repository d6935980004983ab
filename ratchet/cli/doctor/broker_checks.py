"""The checks of `ratchet doctor` that look at the broker: is one installed, does it answer, can it do what we need."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

from pika.adapters.blocking_connection import BlockingConnection
from pika.exceptions import AMQPError, ChannelClosedByBroker

from ratchet.bus.amqp.short_connection import BrokerUnreachable, connected, without_password
from ratchet.bus.topology import DEAD_LETTERS, UNROUTABLE, Topology
from ratchet.cli.doctor.check import Check
from ratchet.cli.fleet.local_broker import INSTALL_SENTENCE, server_folder
from ratchet.cli.status.queue_depths import QueueDepth, queue_depths
from ratchet.service.errors import BusError

TRIED_ARGUMENTS = {
    "x-queue-type": "quorum",
    "x-overflow": "reject-publish",
    "x-message-ttl": 60_000,
    "x-delivery-limit": 20,
    "x-dead-letter-exchange": "",
    "x-dead-letter-strategy": "at-least-once",
    "x-expires": 60_000,
}
"""All that the fleet's queues ask for; RabbitMQ from 3.10 on has it."""
ACCESS_REFUSED = 403


def broker_checks(url: str, namespace: str, topology: Topology, *, expected: bool) -> Iterator[Check]:
    """`expected`: a broker should answer at the URL now, because a fleet is up or the environment names it."""
    yield _installed()
    try:
        with connected(url) as connection:
            yield Check("broker", "ok", f"answers at {without_password(url)}")
            yield _tried_out(connection)
            depths = queue_depths(connection, topology, namespace)
            yield dead_letters_check(depths)
            yield unroutable_check(depths)
    except BrokerUnreachable as error:
        none = Check("broker", "ok", "none is running yet; `ratchet up` starts one")
        yield Check("broker", "fail", str(error), "ratchet up") if expected else none
    except BusError as error:
        yield Check("broker", "fail", str(error), "look into the broker's log")


def dead_letters_check(depths: Sequence[QueueDepth]) -> Check:
    if count := _waiting(depths, DEAD_LETTERS):
        return Check("dead letters", "warn", f"{count:,} could not be handled", "ratchet dead-letters list")
    return Check("dead letters", "ok", "none")


def unroutable_check(depths: Sequence[QueueDepth]) -> Check:
    if count := _waiting(depths, UNROUTABLE):
        says = f"{count:,} were sent to a name that no queue has"
        return Check("unroutable", "warn", says, "ratchet dead-letters list --unroutable")
    return Check("unroutable", "ok", "none")


def _waiting(depths: Sequence[QueueDepth], queue: str) -> int:
    return sum(depth.messages or 0 for depth in depths if depth.name == queue)


def _installed() -> Check:
    folder = server_folder()
    if folder is None:
        return Check("rabbitmq", "warn", "not installed here", INSTALL_SENTENCE)
    return Check("rabbitmq", "ok", f"installed in {folder.parent}")


def _tried_out(connection: BlockingConnection) -> Check:
    """A message into a queue such as the fleet's and out again: an open port is no proof."""
    name = f"ratchet.doctor.{uuid.uuid4().hex}"
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(name, durable=True, arguments=TRIED_ARGUMENTS)
        channel.basic_publish("", name, b"well?", mandatory=True)
        _, _, body = channel.basic_get(name, auto_ack=True)
        channel.queue_delete(name)
    except AMQPError as error:
        if isinstance(error, ChannelClosedByBroker) and error.reply_code == ACCESS_REFUSED:
            what = "not tried out: this user of the broker may not make queues, as it should be where they are set up"
            return Check("queues", "warn", what, "ratchet status")
        return Check("queues", "fail", f"a quorum queue can't be used ({error!r})", "use RabbitMQ 3.10 or newer")
    if body != b"well?":
        return Check("queues", "fail", "a confirmed message did not come out again", "look into the broker's log")
    return Check("queues", "ok", "a quorum queue took a message and gave it back")
