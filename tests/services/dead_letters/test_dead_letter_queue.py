"""Dead letters on a real broker: looked at without loss, sent back with a confirm before they leave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from threading import Thread

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import AMQPError
from pika.spec import BasicProperties

from services.amqp.short_connection import connected
from services.cli.watch.queue_depths import queue_depths
from services.dead_letters.dead_letter import DeadLetter
from services.dead_letters.dead_letter_queue import DeadLetterQueue
from services.errors import DeadLetterError
from services.retry_policy import QUEUE, REASON
from services.topology import DEAD_LETTERS, RESPONSES, fleet_topology

pytestmark = pytest.mark.broker

TOPOLOGY = fleet_topology(("small",))


@pytest.fixture
def connection(amqp_url: str, namespace: str) -> Iterator[BlockingConnection]:
    """With the queues of dead letters and of responses."""
    with connected(amqp_url) as connection:
        channel = connection.channel()
        for name in (DEAD_LETTERS, RESPONSES):
            arguments = TOPOLOGY.queue(name).arguments
            if "x-dead-letter-exchange" in arguments:
                arguments |= {"x-dead-letter-exchange": f"{namespace}ratchet.dead"}
            channel.queue_declare(namespace + name, durable=True, arguments=arguments)
        channel.close()
        yield connection


def bury(connection: BlockingConnection, namespace: str, body: bytes, queue: str | None = RESPONSES) -> None:
    headers = {REASON: f"reason of {body!r}"} | ({QUEUE: queue} if queue else {})
    properties = BasicProperties(headers=headers, delivery_mode=2, message_id="m", reply_to="user", type="task.v1")
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("", namespace + DEAD_LETTERS, body, properties)
    channel.close()


def settled_depth(connection: BlockingConnection, namespace: str, expected: int) -> int | None:
    """Of the dead letters. What was held comes back into the queue a moment after its channel was closed."""
    found: int | None = None
    for _ in range(50):
        depths = queue_depths(connection, TOPOLOGY, namespace)
        found = next(queue.messages for queue in depths if queue.name == DEAD_LETTERS)
        if found == expected:
            break
        connection.sleep(0.05)
    return found


def anything(letter: DeadLetter) -> bool:
    return True


def ignore(_: str) -> None:
    """Nobody listens."""


def test_looking_often_loses_nothing(connection: BlockingConnection, namespace: str) -> None:
    for body in (b"one", b"two", b"three"):
        bury(connection, namespace, body)
    queue = DeadLetterQueue(connection, namespace)

    for _ in range(30):
        assert settled_depth(connection, namespace, 3) == 3
        assert {letter.beginning for letter, _ in queue.letters()} == {"one", "two", "three"}

    assert settled_depth(connection, namespace, 3) == 3
    assert len(queue.letters(limit=2)) == 2


def test_one_goes_back_whole_and_the_others_stay(connection: BlockingConnection, namespace: str) -> None:
    for body in (b"one", b"two", b"three"):
        bury(connection, namespace, body)
    queue = DeadLetterQueue(connection, namespace)
    wanted = next(letter.id for letter, body in queue.letters() if body == b"two")
    assert settled_depth(connection, namespace, 3) == 3

    sent, stayed = queue.requeue(lambda letter: letter.id == wanted, one_at_a_time=False, say=ignore)

    assert (sent, stayed) == ([wanted], [])
    assert settled_depth(connection, namespace, 2) == 2
    assert {letter.beginning for letter, _ in queue.letters()} == {"one", "three"}
    _, properties, body = connection.channel().basic_get(namespace + RESPONSES, auto_ack=True)
    assert body == b"two"
    assert properties is not None
    assert (properties.message_id, properties.reply_to, properties.type) == ("m", "user", "task.v1")
    assert not any(name.startswith("x-ratchet") for name in properties.headers or {})


def test_what_has_nowhere_to_go_stays_and_says_why(connection: BlockingConnection, namespace: str) -> None:
    bury(connection, namespace, b"gone", queue="work.gone")
    bury(connection, namespace, b"silent", queue=None)
    queue = DeadLetterQueue(connection, namespace)

    sent, stayed = queue.requeue(anything, one_at_a_time=False, say=ignore)

    assert sent == []
    assert len(stayed) == 2
    assert any("no queue" in stays.reason and "work.gone" in stays.reason for stays in stayed)
    assert settled_depth(connection, namespace, 2) == 2


def test_one_at_a_time_goes_on_while_they_are_taken(
    amqp_url: str, connection: BlockingConnection, namespace: str
) -> None:
    for body in (b"one", b"two"):
        bury(connection, namespace, body)
    with connected(amqp_url) as other:
        consumer = other.channel()
        consumer.basic_consume(namespace + RESPONSES, lambda *_: None, auto_ack=True)
        said: list[str] = []

        sent, _ = DeadLetterQueue(connection, namespace).requeue(anything, one_at_a_time=True, say=said.append)

    assert (len(sent), len(said)) == (2, 2)
    assert settled_depth(connection, namespace, 0) == 0


def test_one_at_a_time_stops_at_the_letter_that_takes_its_consumer_along(
    amqp_url: str, connection: BlockingConnection, namespace: str
) -> None:
    for body in (b"poison", b"innocent"):
        bury(connection, namespace, body)
    victim = pika.BlockingConnection(pika.URLParameters(amqp_url))
    channel = victim.channel()
    channel.basic_consume(namespace + RESPONSES, lambda *_: victim.close(), auto_ack=True)
    dying = Thread(target=until_dead, args=(channel,))
    dying.start()

    with pytest.raises(DeadLetterError, match=r"a consumer of .* is gone"):
        DeadLetterQueue(connection, namespace).requeue(anything, one_at_a_time=True, say=ignore)

    dying.join()
    assert settled_depth(connection, namespace, 1) == 1


def test_one_at_a_time_sends_nothing_where_nobody_would_take_it(connection: BlockingConnection, namespace: str) -> None:
    bury(connection, namespace, b"one")

    with pytest.raises(DeadLetterError, match="nobody consumes"):
        DeadLetterQueue(connection, namespace).requeue(anything, one_at_a_time=True, say=ignore)

    assert settled_depth(connection, namespace, 1) == 1


def until_dead(channel: BlockingChannel) -> None:
    with suppress(AMQPError, ValueError):
        channel.start_consuming()


def test_without_the_queue_it_says_the_fleet_was_never_up(amqp_url: str) -> None:
    with connected(amqp_url) as connection, pytest.raises(DeadLetterError, match="never up"):
        DeadLetterQueue(connection, "nowhere.").letters()
