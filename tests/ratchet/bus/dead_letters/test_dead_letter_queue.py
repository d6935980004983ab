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

from ratchet.bus.amqp.short_connection import open_connection
from ratchet.bus.dead_letters.letter import LOST, DeadLetter
from ratchet.bus.dead_letters.queue import DeadLetterQueue
from ratchet.bus.retry_policy import QUEUE, REASON
from ratchet.bus.topology import (
    DEAD_LETTERS,
    EXCHANGE,
    RESPONSES,
    UNROUTABLE,
    UNROUTABLE_EXCHANGE,
    fleet_topology,
)
from ratchet.service.errors import DeadLetterError
from services.cli.fleet.readiness import queue_depths
from tests.memory_bus import own_headers

pytestmark = pytest.mark.broker

TOPOLOGY = fleet_topology(("small",))


@pytest.fixture
def connection(amqp_url: str, namespace: str) -> Iterator[BlockingConnection]:
    """With the queues of dead letters and of responses."""
    with open_connection(amqp_url) as connection:
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


def settled_depth(
    connection: BlockingConnection, namespace: str, expected: int, name: str = DEAD_LETTERS
) -> int | None:
    """What was held comes back into the queue a moment after its channel was closed."""
    found: int | None = None
    for _ in range(600):
        depths = queue_depths(connection, TOPOLOGY, namespace)
        found = next(queue.messages for queue in depths if queue.name == name)
        if found == expected:
            break
        connection.sleep(0.05)  # real time: the broker tells nobody
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
    with open_connection(amqp_url) as other:
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


@pytest.fixture
def exchange(connection: BlockingConnection, namespace: str) -> str:
    """Where services publish; what no queue takes there comes into `unroutable`."""
    channel = connection.channel()
    name, alternate = namespace + EXCHANGE, namespace + UNROUTABLE_EXCHANGE
    channel.exchange_declare(alternate, "fanout", durable=True)
    channel.exchange_declare(name, "topic", durable=True, arguments={"alternate-exchange": alternate})
    channel.queue_declare(namespace + UNROUTABLE, durable=True, arguments=TOPOLOGY.queue(UNROUTABLE).arguments)
    channel.queue_bind(namespace + UNROUTABLE, alternate)
    channel.close()
    return name


def publish(connection: BlockingConnection, exchange: str, routing_key: str, body: bytes) -> None:
    headers = {REASON: "a header the sender gave it", "CC": ["elsewhere"]}
    properties = BasicProperties(headers=headers, delivery_mode=2, message_id="m", reply_to="user", type="work.v1")
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish(exchange, routing_key, body, properties)
    channel.close()


def test_the_unroutable_stays_until_its_queue_is_there_and_goes_where_it_was_sent_to(
    connection: BlockingConnection, namespace: str, exchange: str
) -> None:
    target = f"{namespace}work.small"
    publish(connection, exchange, target, b"for small")
    lost = DeadLetterQueue(connection, namespace, LOST)

    # while there is no such queue
    ((letter, _),) = lost.letters()
    assert settled_depth(connection, namespace, 1, UNROUTABLE) == 1
    sent, stayed = lost.requeue(anything, one_at_a_time=False, say=ignore)
    assert (letter.queue, target in letter.reason) == (target, True)
    assert sent == []
    assert [stays.id for stays in stayed] == [letter.id]
    assert f"there is no queue {target}: " in stayed[0].reason and "RATCHET_AGENTS" in stayed[0].reason

    # once there is
    connection.channel().queue_declare(target, durable=True, arguments={"x-queue-type": "quorum"})
    assert settled_depth(connection, namespace, 1, UNROUTABLE) == 1

    sent, stayed = lost.requeue(anything, one_at_a_time=False, say=ignore)

    assert (sent, stayed) == ([letter.id], [])
    assert settled_depth(connection, namespace, 0, UNROUTABLE) == 0
    _, properties, body = connection.channel().basic_get(target, auto_ack=True)
    assert body == b"for small"
    assert properties is not None
    assert (properties.message_id, properties.reply_to, properties.type) == ("m", "user", "work.v1")
    assert own_headers(properties.headers or {}) == {REASON: "a header the sender gave it"}
    assert "CC" not in (properties.headers or {})


def test_one_at_a_time_passes_over_what_has_no_queue(
    amqp_url: str, connection: BlockingConnection, namespace: str, exchange: str
) -> None:
    publish(connection, exchange, f"{namespace}misspelt", b"one")
    publish(connection, exchange, f"{namespace}work.small", b"two")
    connection.channel().queue_declare(f"{namespace}work.small", durable=True, arguments={"x-queue-type": "quorum"})
    with open_connection(amqp_url) as other:
        other.channel().basic_consume(f"{namespace}work.small", lambda *_: None, auto_ack=True)

        sent, stayed = DeadLetterQueue(connection, namespace, LOST).requeue(anything, one_at_a_time=True, say=ignore)

    assert len(sent) == 1
    assert [stays.reason.startswith(f"there is no queue {namespace}misspelt") for stays in stayed] == [True]


def test_the_queue_of_another_fleet_is_left_alone(
    connection: BlockingConnection, namespace: str, exchange: str
) -> None:
    # given a sender that forgot the prefix, and another fleet's queue of that very name
    foreign = f"other.{namespace}tasks"
    channel = connection.channel()
    channel.queue_declare(foreign, exclusive=True)
    publish(connection, exchange, foreign, b"mine")

    sent, stayed = DeadLetterQueue(connection, namespace, LOST).requeue(anything, one_at_a_time=False, say=ignore)

    assert sent == []
    assert "is not of this fleet" in stayed[0].reason
    assert channel.basic_get(foreign)[0] is None


def until_dead(channel: BlockingChannel) -> None:
    with suppress(AMQPError, ValueError):
        channel.start_consuming()


def test_without_the_queue_it_says_the_fleet_was_never_up(amqp_url: str) -> None:
    with open_connection(amqp_url) as connection, pytest.raises(DeadLetterError, match="never up"):
        DeadLetterQueue(connection, "nowhere.").letters()
