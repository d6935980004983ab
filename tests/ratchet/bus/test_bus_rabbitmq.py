"""What only a broker can do to the bus: refuse, return, delete, disagree; and what other clients send and read."""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aio_pika
import pika.connection
import pika.frame
import pytest
import uvloop
from prometheus_client import REGISTRY

from ratchet.bus.amqp.channel import open_channel
from ratchet.bus.amqp.connection import AmqpConnection, connection_parameters, open_connection
from ratchet.bus.amqp.declaration import TopologyConflict
from ratchet.bus.amqp.frames import Properties, publish_frames
from ratchet.bus.amqp.rabbit_bus import LARGEST_BODY, RabbitBus
from ratchet.bus.in_hand import DELIVERED_BYTES, HANDLED_BYTES, weight
from ratchet.bus.protocol import Delivery
from ratchet.bus.retry_policy import REASON
from ratchet.bus.topology import DEAD_LETTERS, RESPONSES, REWARDS, TASKS, Topology
from ratchet.service.errors import BusError, PublishTimeout, Reject
from tests.private_broker import free_port
from tests.ratchet.bus.bus_kit import ARRIVES_WITHIN_S, Recorder, put, quick_topology
from tests.waiting import settled, until

pytestmark = pytest.mark.broker


@pytest.fixture
async def bus(amqp_url: str, namespace: str) -> AsyncIterator[RabbitBus]:
    bus = RabbitBus(amqp_url, quick_topology(), name="test", namespace=namespace)
    await bus.start()
    yield bus
    await bus.stop(0)


@pytest.fixture
async def client(amqp_url: str) -> AsyncIterator[aio_pika.abc.AbstractChannel]:
    """An independent client's channel."""
    connection = await aio_pika.connect(amqp_url)
    yield await connection.channel()
    await connection.close()


def short_queue(name: str, length: int) -> Topology:
    topology = quick_topology()
    queues = (replace(queue, max_length=length) if queue.name == name else queue for queue in topology.queues)
    return replace(topology, queues=tuple(queues))


async def test_another_client_publishes_and_reads(
    bus: RabbitBus, namespace: str, client: aio_pika.abc.AbstractChannel
) -> None:
    async def answer(delivery: Delivery) -> None:
        await bus.publish(RESPONSES, delivery.body.upper(), type="response.v1", message_id="r1")

    await bus.consume(TASKS, Recorder(answer), prefetch=4)
    await client.default_exchange.publish(aio_pika.Message(b"hello", priority=3), routing_key=namespace + TASKS)

    queue = await client.get_queue(namespace + RESPONSES)
    await until(lambda: _has_messages(bus, RESPONSES), "an answer")
    message = await queue.get(timeout=ARRIVES_WITHIN_S)
    assert message is not None
    assert (message.body, message.type, message.message_id) == (b"HELLO", "response.v1", "r1")
    assert (message.content_type, message.delivery_mode) == ("application/json", 2)
    await message.ack()


async def _has_messages(bus: RabbitBus, queue: str) -> bool:
    return (await bus.state(queue)).messages > 0


async def test_fleets_of_two_namespaces_share_a_broker(bus: RabbitBus, amqp_url: str, namespace: str) -> None:
    other = RabbitBus(amqp_url, quick_topology(), name="other", namespace=f"{namespace}b.")
    await other.start()
    mine, theirs = Recorder(), Recorder()
    await bus.consume(TASKS, mine, prefetch=1)
    await other.consume(TASKS, theirs, prefetch=1)

    await put(bus, TASKS, b"mine")
    await put(other, TASKS, b"theirs")

    await mine.until(1)
    await theirs.until(1)
    assert (mine.bodies, theirs.bodies) == ([b"mine"], [b"theirs"])
    await _delete_all(other, amqp_url, f"{namespace}b.")


async def _delete_all(bus: RabbitBus, amqp_url: str, namespace: str) -> None:
    await bus.stop(0)
    async with await aio_pika.connect(amqp_url) as connection:
        channel = await connection.channel()
        topology = quick_topology()
        for name in (*topology.names, *(rung.name for rung in topology.rungs)):
            await channel.queue_delete(namespace + name)


async def test_a_body_of_many_frames_arrives_whole(bus: RabbitBus) -> None:
    handler = Recorder()
    await bus.consume(TASKS, handler, prefetch=1)
    body = bytes(range(256)) * 4096

    await bus.publish(TASKS, body, type="task.v1", message_id="m")
    await bus.publish(TASKS, b"", type="task.v1", message_id="empty")

    await handler.until(2)
    assert handler.bodies == [body, b""]


async def test_a_body_no_broker_takes_is_rejected_before_it_is_sent(bus: RabbitBus) -> None:
    with pytest.raises(Reject, match="too large"):
        await bus.publish(TASKS, bytes(LARGEST_BODY + 1), type="task.v1", message_id="m")


async def test_a_property_amqp_cannot_carry_is_rejected_and_harms_no_other_message(bus: RabbitBus) -> None:
    handler = Recorder()
    await bus.consume(TASKS, handler, prefetch=1)
    with pytest.raises(Reject, match="255 bytes"):
        await bus.publish(TASKS, b"t", type="task.v1", message_id="m" * 300)
    await put(bus, TASKS, b"good")
    await handler.until(1)
    assert handler.bodies == [b"good"]


async def test_headers_that_crash_other_clients_do_not_break_the_connection(
    bus: RabbitBus, amqp_url: str, namespace: str
) -> None:
    handler = Recorder()
    await bus.consume(TASKS, handler, prefetch=1)

    await _publish_time_in_milliseconds(amqp_url, namespace + TASKS)
    await put(bus, TASKS, b"next")

    await handler.until(2)
    assert handler.bodies == [b"odd", b"next"]
    assert handler.got[0].headers == {"t": 1_700_000_000_000}


async def _publish_time_in_milliseconds(amqp_url: str, queue: str) -> None:
    connection = await open_connection(connection_parameters(amqp_url, "outsider"))
    channel = await open_channel(connection)
    sent = Properties(headers={"t": 1_700_000_000_000})
    frames = publish_frames(channel.number, "", queue, sent, b"odd", mandatory=False, frame_max=4096)
    as_number, as_time = (b"\x01t" + kind + struct.pack(">q", 1_700_000_000_000) for kind in (b"l", b"T"))
    assert as_number in frames
    connection.send(frames.replace(as_number, as_time))
    connection.flush()
    connection.close()
    await connection.closed


async def test_a_message_due_to_expire_waits_in_the_dead_letters_for_good(
    bus: RabbitBus, namespace: str, client: aio_pika.abc.AbstractChannel
) -> None:
    async def reject(_delivery: Delivery) -> None:
        raise Reject("no")

    await bus.consume(TASKS, Recorder(reject), prefetch=1)
    message = aio_pika.Message(b"t", expiration=60, app_id="app", user_id="guest")
    await client.default_exchange.publish(message, routing_key=namespace + TASKS)

    letters = await client.get_queue(namespace + DEAD_LETTERS)
    await until(lambda: _has_messages(bus, DEAD_LETTERS), "a dead letter")
    letter = await letters.get(timeout=ARRIVES_WITHIN_S)
    assert letter is not None
    assert (letter.expiration, letter.app_id, letter.headers[REASON]) == (None, "app", "no")
    await letter.ack()


async def test_a_consumer_comes_back_after_its_queue_was_deleted(
    bus: RabbitBus, namespace: str, client: aio_pika.abc.AbstractChannel, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Recorder()
    await bus.consume(TASKS, handler, prefetch=4)
    await put(bus, TASKS, b"before")
    await handler.until(1)

    await client.queue_delete(namespace + TASKS)

    await until(lambda: bus.delivery_trouble(TASKS) is not None, "the trouble")
    of_another = bus.delivery_trouble(RESPONSES)
    assert of_another is None or "INTERNAL_ERROR" in of_another  # a busy broker of 3.10 ends the whole connection by it
    await until(lambda: "subscribing again" in caplog.text, "the loss")
    await until(lambda: bus.trouble() is None, "the consumer's return")
    await put(bus, TASKS, b"after")
    await handler.until(2)
    assert handler.bodies == [b"before", b"after"]


async def test_publishing_survives_the_deletion_of_the_exchange(
    bus: RabbitBus, namespace: str, client: aio_pika.abc.AbstractChannel
) -> None:
    handler = Recorder()
    await bus.consume(TASKS, handler, prefetch=4)
    await client.exchange_delete(namespace + "ratchet")

    await asyncio.gather(*(put(bus, TASKS, b"%d" % number) for number in range(10)))

    await until(lambda: len(set(handler.bodies)) == 10, "all ten")


async def fill(bus: RabbitBus) -> None:
    """A quorum queue notices a little late that it is full: publish until it refuses one."""
    before = refusals()
    while refusals() == before:
        filler = asyncio.create_task(put(bus, TASKS, b"filler"))
        await until(lambda: filler.done() or refusals() > before, "a confirm or a refusal")  # noqa: B023
    filler.cancel()


def refusals() -> float:
    return REGISTRY.get_sample_value("ratchet_publish_retries_total") or 0.0


async def test_a_full_queue_holds_its_publishers_until_there_is_room(amqp_url: str, namespace: str) -> None:
    bus = RabbitBus(amqp_url, short_queue(TASKS, 5), name="test", namespace=namespace)
    await bus.start()
    await fill(bus)
    publishing = [asyncio.create_task(put(bus, TASKS, b"%d" % number)) for number in range(40)]
    await settled(0.5)
    assert not any(task.done() for task in publishing)

    handler = Recorder()
    await bus.consume(TASKS, handler, prefetch=4)

    await asyncio.gather(*publishing)
    await until(lambda: len(set(handler.bodies)) == 41, "all forty, and what filled the queue")
    await bus.stop(1)


async def test_a_queue_that_stays_full_is_a_publish_timeout_that_says_so(amqp_url: str, namespace: str) -> None:
    bus = RabbitBus(amqp_url, short_queue(TASKS, 1), name="test", namespace=namespace, publish_timeout_s=5.0)
    await bus.start()
    await fill(bus)
    publishing = asyncio.create_task(put(bus, TASKS, b"one too many"))
    await until(lambda: "refused" in (bus.trouble() or ""), "the trouble")
    assert bus.delivery_trouble(TASKS) is None
    with pytest.raises(PublishTimeout, match=rf"{TASKS}.*refused"):
        await publishing
    await put(bus, REWARDS, b"another queue")
    await bus.stop(0)


async def test_a_users_queue_that_refuses_the_reply_is_taken_for_gone(
    bus: RabbitBus, client: aio_pika.abc.AbstractChannel
) -> None:
    arguments: dict[str, Any] = {"x-max-length": 1, "x-overflow": "reject-publish"}
    name = f"user-{uuid.uuid4().hex}"
    await client.declare_queue(name, exclusive=True, arguments=arguments)
    reply: dict[str, Any] = {"type": "result.v1", "correlation_id": None}

    assert await bus.reply(name, b"first", message_id="1", **reply)
    async with asyncio.timeout(ARRIVES_WITHIN_S):
        assert not await bus.reply(name, b"second", message_id="2", **reply)


@pytest.mark.parametrize("name", [TASKS, "rewards", "responses"])
async def test_no_answer_is_sent_to_a_queue_of_the_fleet_because_a_task_names_it(
    bus: RabbitBus, namespace: str, client: aio_pika.abc.AbstractChannel, name: str
) -> None:
    await client.declare_queue(namespace + name, passive=True)

    assert not await bus.reply(namespace + name, b"{}", type="result.v1", message_id="1", correlation_id=None)


async def test_a_queue_with_other_arguments_is_an_error_that_says_what_to_do(
    amqp_url: str, namespace: str, client: aio_pika.abc.AbstractChannel
) -> None:
    await client.declare_queue(namespace + TASKS, durable=True)
    bus = RabbitBus(amqp_url, quick_topology(), name="test", namespace=namespace)

    with pytest.raises(TopologyConflict, match=r"delete_queue"):
        await bus.start()


@pytest.mark.parametrize(
    ("bound", "sentence", "remedy"),
    [
        ({}, "with no bytes", "rabbitmqctl set_policy"),
        ({"x-max-length-bytes": 12_345}, "with 12345 bytes", "drain it, rabbitmqctl delete_queue"),
        ({"x-max-length-bytes": 10**12}, "with 1000000000000 bytes", "rabbitmqctl set_policy"),
    ],
    ids=["none", "a smaller one", "a larger one"],
)
async def test_a_queue_with_another_bound_in_bytes_is_taken_over_with_what_is_in_it(
    amqp_url: str,
    namespace: str,
    client: aio_pika.abc.AbstractChannel,
    bound: dict[str, Any],
    sentence: str,
    remedy: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # given the queue of tasks and a rung as a fleet before this one declared them, and a task
    topology = quick_topology()
    for part in (topology.queue(TASKS), topology.rungs[0]):
        arguments = {key: value for key, value in part.arguments.items() if key != "x-max-length-bytes"} | bound
        if arguments["x-dead-letter-exchange"]:
            arguments["x-dead-letter-exchange"] = namespace + arguments["x-dead-letter-exchange"]
        await client.declare_queue(namespace + part.name, durable=True, arguments=arguments)
    await client.default_exchange.publish(aio_pika.Message(b"before", delivery_mode=2), namespace + TASKS)

    bus = RabbitBus(amqp_url, topology, name="test", namespace=namespace)
    await bus.start()
    handler = Recorder()
    await bus.consume(TASKS, handler, prefetch=4)
    await put(bus, TASKS, b"after")

    await until(lambda: set(handler.bodies) == {b"before", b"after"}, "both")
    told = [record.message for record in caplog.records if getattr(record, "action", "") == "other-bound"]
    assert len(told) == 2
    assert all(sentence in one and remedy in one for one in told)
    await bus.stop(0)


async def test_start_waits_for_a_broker_and_stop_ends_the_wait() -> None:
    bus = RabbitBus(f"amqp://127.0.0.1:{free_port()}/", quick_topology(), name="test")
    starting = asyncio.create_task(bus.start())
    await settled(0.3)
    assert not starting.done()
    assert "no connection to the broker at 127.0.0.1:" in (bus.trouble() or "")
    assert "no connection to the broker at 127.0.0.1:" in (bus.delivery_trouble(REWARDS) or "")

    assert await bus.stop(1)
    with pytest.raises(BusError, match="stopped"):
        await starting


async def test_after_unfinished_work_deliveries_come_singly_until_a_fresh_one(bus: RabbitBus) -> None:
    never = asyncio.Event()

    async def hang(_delivery: Delivery) -> None:
        await never.wait()

    hanging = Recorder(hang)
    await bus.consume(RESPONSES, hanging, prefetch=8)
    for number in range(5):
        await put(bus, RESPONSES, b"%d" % number)
    await hanging.until(5)
    assert not await bus.stop(0)
    await bus.start()

    together: list[tuple[bool, int]] = []
    running = 0

    async def count(delivery: Delivery) -> None:
        nonlocal running
        running += 1
        await asyncio.sleep(0.05)  # real time: long enough for another to begin meanwhile
        together.append((delivery.redelivered, running))
        running -= 1

    again = Recorder(count)
    await bus.consume(RESPONSES, again, prefetch=8)
    await again.until(5)
    await asyncio.gather(*(put(bus, RESPONSES, b"%d" % number) for number in range(5, 15)))
    await until(lambda: len(together) == 15, "all fifteen")
    assert {at_once for redelivered, at_once in together if redelivered} == {1}
    assert max(at_once for redelivered, at_once in together if not redelivered) > 1


async def test_messages_in_hand_are_bounded_in_bytes_and_all_are_handled(bus: RabbitBus) -> None:
    megabyte = bytes(2**20)
    gate = asyncio.Event()

    async def hold(_delivery: Delivery) -> None:
        await gate.wait()

    handler = Recorder(hold)
    for number in range(150):
        await bus.publish(RESPONSES, megabyte, type="response.v1", message_id=f"m{number}")
    await bus.consume(RESPONSES, handler, prefetch=512)

    async def _settled_at_the_bound() -> bool:
        waiting = (await bus.state(RESPONSES)).messages
        return len(handler.got) == HANDLED_BYTES // weight(megabyte) and waiting == 150 - DELIVERED_BYTES // 2**20 - 1

    await until(_settled_at_the_bound, "as many handled as weigh no more than the bound, and 65 delivered")
    gate.set()
    await handler.until(150)
    assert await bus.stop(5)


async def test_what_becomes_of_messages_is_counted(bus: RabbitBus) -> None:
    async def judge(delivery: Delivery) -> None:
        if delivery.body == b"bad":
            raise Reject("bad")

    before = _counted()
    await bus.consume(TASKS, Recorder(judge), prefetch=4)
    for body in (b"good", b"bad", b"good"):
        await put(bus, TASKS, body)

    await until(lambda: _counted()[0] == before[0] + 2 and _counted()[1] == before[1] + 1, "three outcomes")
    assert REGISTRY.get_sample_value("ratchet_broker_connected") == 1.0


def _counted() -> tuple[float, float]:
    def count(outcome: str) -> float:
        return REGISTRY.get_sample_value("ratchet_messages_total", {"queue": TASKS, "outcome": outcome}) or 0.0

    return count("acked"), count("dead_lettered")


def test_it_runs_on_uvloop(amqp_url: str, namespace: str) -> None:
    async def echo_a_hundred() -> list[bytes]:
        bus = RabbitBus(amqp_url, quick_topology(), name="test", namespace=namespace)
        await bus.start()
        handler = Recorder()
        await bus.consume(TASKS, handler, prefetch=16)
        await asyncio.gather(*(put(bus, TASKS, b"%d" % number) for number in range(100)))
        await handler.until(100)
        assert await bus.stop(5)
        return handler.bodies

    assert sorted(uvloop.run(echo_a_hundred())) == sorted(b"%d" % number for number in range(100))


def test_pika_still_has_the_hooks_the_connection_fills_in() -> None:
    """They are private: when this fails, read ratchet/bus/amqp/connection.py beside the new pika before pinning it."""
    ours = {name for name in vars(AmqpConnection) if name.startswith("_adapter_")}
    theirs = {name for name in vars(pika.connection.Connection) if name.startswith("_adapter_")}
    assert ours == theirs
    for used in ("_on_stream_connected", "_on_stream_terminated", "_process_frame"):
        assert callable(getattr(pika.connection.Connection, used))
    assert callable(pika.frame.decode_frame)
