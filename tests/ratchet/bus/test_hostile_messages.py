"""Messages that outsiders made to do harm, on a real broker: innocent ones pass, and none is lost or changed."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from ratchet.bus.amqp.forwarding import WireMessage
from ratchet.bus.amqp.frames import Properties, write_properties
from ratchet.bus.amqp.rabbit_bus import RabbitBus
from ratchet.bus.amqp.short_connection import open_connection
from ratchet.bus.amqp.table import WireTable, bytes_of, edit_headers, text_of
from ratchet.bus.claim_store import ClaimStore
from ratchet.bus.dead_letters.queue import DeadLetterQueue, Held
from ratchet.bus.protocol import Delivery
from ratchet.bus.retry_policy import NOTE
from ratchet.bus.topology import DEAD_LETTERS, FEEDBACK, RESPONSES, REWARDS, TASKS, Topology, work_queue
from ratchet.service.errors import Reject, Retry
from tests.ratchet.bus.bus_kit import Recorder, put, quick_topology
from tests.ratchet.bus.hostile import FRAME_MAX, ROOM, Outsider, filled, hostile_message, hostile_texts
from tests.waiting import until, wait_until

pytestmark = pytest.mark.broker

RATE = 50
"""Bad messages, and as many innocent ones, a second."""
IN_TIME_S = 5.0
QUEUES = (TASKS, work_queue("small"), RESPONSES, REWARDS, FEEDBACK)


@pytest.fixture
async def bus(amqp_url: str, namespace: str, tmp_path: Path) -> AsyncIterator[RabbitBus]:
    bus = RabbitBus(amqp_url, quick_topology(), name="test", namespace=namespace, store=ClaimStore(tmp_path))
    await bus.start()
    yield bus
    await bus.stop(0)


@pytest.fixture
async def outsider(amqp_url: str) -> AsyncIterator[Outsider]:
    outsider = await Outsider.connect(amqp_url)
    yield outsider
    await outsider.close()


async def refuse_no_json(delivery: Delivery) -> None:
    try:
        json.loads(delivery.body)
    except ValueError as error:
        raise Reject(f"not JSON: {error}") from None


def letters_of(amqp_url: str, namespace: str, store: ClaimStore | None = None) -> list[Held]:
    """Once they are back in their queue, which is a moment after the channel that held them was closed."""
    with open_connection(amqp_url) as connection:
        holding, looking = connection.channel(), connection.channel()
        held = list(DeadLetterQueue(connection, namespace, store=store)._hold(holding, None))
        holding.close()
        queue = namespace + DEAD_LETTERS
        wait_until(lambda: looking.queue_declare(queue, passive=True).method.message_count == len(held))
    return held


async def depth(bus: RabbitBus, queue: str) -> int:
    return (await bus.state(queue)).messages


def lost_connections(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if getattr(record, "action", "") == "disconnected"]


async def test_one_message_that_fills_its_frame_does_not_stop_the_others(
    bus: RabbitBus, outsider: Outsider, namespace: str, amqp_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    sent = WireMessage(filled(Properties(message_id="m")), b"not JSON")
    handler = Recorder(refuse_no_json)
    outsider.publish(namespace + TASKS, sent)
    await bus.consume(TASKS, handler, prefetch=8)
    for number in range(300):
        await put(bus, TASKS, b"%d" % number)

    await until(lambda: len(set(handler.bodies)) == 301, "all innocent ones")
    await until(lambda: _holds(bus, DEAD_LETTERS, 1), "the dead letter")

    assert lost_connections(caplog) == []
    (held,) = letters_of(amqp_url, namespace)
    assert "not JSON" in held.letter.reason
    assert held.body == sent.body
    assert _raw(held.properties).startswith(_raw(sent.properties))


async def _holds(bus: RabbitBus, queue: str, count: int) -> bool:
    return await depth(bus, queue) == count


def _raw(properties: Properties) -> bytes:
    assert isinstance(properties.headers, WireTable)
    return properties.headers.raw


async def test_it_goes_back_as_its_sender_wrote_it(
    bus: RabbitBus, outsider: Outsider, namespace: str, amqp_url: str
) -> None:
    sent = WireMessage(filled(hostile_texts()), b"not JSON")
    outsider.publish(namespace + RESPONSES, sent)
    await bus.consume(RESPONSES, Recorder(refuse_no_json), prefetch=8)
    await until(lambda: _holds(bus, DEAD_LETTERS, 1), "the dead letter")
    await bus.stop(0)

    with open_connection(amqp_url) as connection:
        went, stayed = DeadLetterQueue(connection, namespace).requeue(
            lambda _: True, one_at_a_time=False, say=lambda _: None
        )
        assert (len(went), stayed) == (1, [])
        _, properties, body = connection.channel().basic_get(namespace + RESPONSES, auto_ack=True)
    assert body == sent.body
    arrived, given = properties.properties, sent.properties
    assert _raw(arrived).startswith(_raw(given))  # the broker adds x-delivery-count
    assert replace(arrived, headers=None) == replace(given, headers=None, delivery_mode=2)


async def test_it_climbs_the_ladder_whole(bus: RabbitBus, outsider: Outsider, namespace: str) -> None:
    async def fail_at_first(delivery: Delivery) -> None:
        if delivery.attempt < 2:
            raise Retry("not yet")

    handler = Recorder(fail_at_first)
    sent = WireMessage(filled(hostile_texts()), b"[1]")
    outsider.publish(namespace + TASKS, sent)
    await bus.consume(TASKS, handler, prefetch=8)

    await handler.until(3)

    assert [delivery.attempt for delivery in handler.got] == [0, 1, 2]
    assert set(handler.bodies) == {b"[1]"}
    assert {delivery.correlation_id for delivery in handler.got} == {sent.properties.correlation_id}
    assert all(
        isinstance(one.headers, WireTable) and one.headers.raw.startswith(_raw(sent.properties)) for one in handler.got
    )


async def test_a_reply_has_exactly_the_bytes_its_sender_gave(
    bus: RabbitBus, outsider: Outsider, namespace: str, amqp_url: str
) -> None:
    async def answer(delivery: Delivery) -> None:
        await bus.reply(
            delivery.reply_to or "", b"{}", type="result.v1", message_id="r", correlation_id=delivery.correlation_id
        )

    given = b"\xff\xfe" * 100 + "é\uef80".encode()
    with open_connection(amqp_url) as connection:
        channel = connection.channel()
        channel.queue_declare(f"{namespace}mine", exclusive=True)
        await bus.consume(TASKS, Recorder(answer), prefetch=8)
        properties = Properties(correlation_id=text_of(given), reply_to=f"{namespace}mine")
        outsider.publish(namespace + TASKS, WireMessage(properties, b"[1]"))
        await until(
            lambda: channel.queue_declare(f"{namespace}mine", passive=True).method.message_count == 1, "a reply"
        )
        _, properties, _ = channel.basic_get(f"{namespace}mine", auto_ack=True)
    assert bytes_of(properties.correlation_id) == given


async def test_a_reply_queue_that_no_queue_can_be_is_none(bus: RabbitBus, outsider: Outsider, namespace: str) -> None:
    handler = Recorder()
    await bus.consume(TASKS, handler, prefetch=8)
    for name in (text_of(b"\xff" * 255), ""):
        outsider.publish(namespace + TASKS, WireMessage(Properties(reply_to=name), b"[1]"))
    await handler.until(2)
    assert [delivery.reply_to for delivery in handler.got] == [None, None]


async def test_what_would_lose_it_or_have_it_refused_is_left_out_with_a_note(
    bus: RabbitBus, outsider: Outsider, namespace: str, amqp_url: str
) -> None:
    headers = edit_headers(None, lambda _: True, {"CC": [f"{namespace}{FEEDBACK}"]})
    properties = Properties(expiration="60000", user_id="guest", headers=headers)
    outsider.publish(namespace + TASKS, WireMessage(properties, b"no"))
    await bus.consume(TASKS, Recorder(refuse_no_json), prefetch=8)
    await until(lambda: _holds(bus, DEAD_LETTERS, 1), "the dead letter")

    (held,) = letters_of(amqp_url, namespace)

    assert held.properties.headers is not None
    assert held.properties.headers[NOTE] == "left out: expiration=60000; user_id=guest; header CC"
    assert "left out" in held.letter.reason


async def test_what_fits_no_body_either_is_stored_and_dead_lettered_by_reference(
    bus: RabbitBus, outsider: Outsider, namespace: str, amqp_url: str, tmp_path: Path
) -> None:
    sent = WireMessage(filled(Properties()), b"\xff" * (16 * 1024 * 1024))
    outsider.publish(namespace + RESPONSES, sent)
    await bus.consume(RESPONSES, Recorder(refuse_no_json), prefetch=8)
    await until(lambda: _holds(bus, DEAD_LETTERS, 1), "the dead letter")
    await bus.stop(0)

    (elsewhere,) = letters_of(amqp_url, namespace)
    assert "its folder is not here" in elsewhere.letter.reason
    store = ClaimStore(tmp_path)
    (held,) = letters_of(amqp_url, namespace, store)
    assert "not JSON" in held.letter.reason
    assert held.body == sent.body
    with open_connection(amqp_url) as connection:
        went, stayed = DeadLetterQueue(connection, namespace, store=store).requeue(
            lambda _: True, one_at_a_time=False, say=lambda _: None
        )
        assert (len(went), stayed) == (1, [])
        _, properties, body = connection.channel().basic_get(namespace + RESPONSES, auto_ack=True)
    assert body == sent.body
    assert _raw(properties.properties).startswith(_raw(sent.properties))
    assert {path.name for path in tmp_path.iterdir()} <= {".lock"}


def with_few_dead_letters(count: int) -> Topology:
    topology = quick_topology()
    queues = (replace(one, max_length=count) if one.name == DEAD_LETTERS else one for one in topology.queues)
    return replace(topology, queues=tuple(queues))


async def test_a_full_queue_of_dead_letters_stops_nobody_and_loses_none(
    amqp_url: str, namespace: str, tmp_path: Path
) -> None:
    store = ClaimStore(tmp_path)
    bus = RabbitBus(amqp_url, with_few_dead_letters(5), name="test", namespace=namespace, store=store)
    await bus.start()
    try:
        handler = Recorder(refuse_no_json)
        await bus.consume(TASKS, handler, prefetch=8)
        for number in range(100):
            await put(bus, TASKS, b"bad %d" % number)
            await put(bus, TASKS, b"%d" % number)

        await until(lambda: sum(b"bad" not in body for body in set(handler.bodies)) == 100, "all innocent ones")
        assert bus.trouble() is None
        found: set[bytes] = set()

        async def all_found() -> bool:
            with open_connection(amqp_url) as connection:
                channel = connection.channel()
                while (got := channel.basic_get(namespace + DEAD_LETTERS, auto_ack=True))[0] is not None:
                    assert "not JSON" in str(got[1].headers["x-ratchet-reason"])
                    found.add(got[2])
            return len(found) == 100

        await until(all_found, "every dead letter, when its queue has room")
        await until(lambda: not store.waiting(), "an empty folder")
    finally:
        await bus.stop(0)


async def test_with_no_room_on_disk_either_dead_letters_go_round_and_the_bus_says_so(
    amqp_url: str, namespace: str, tmp_path: Path
) -> None:
    store = ClaimStore(tmp_path, most_bytes=0)
    bus = RabbitBus(amqp_url, with_few_dead_letters(1), name="test", namespace=namespace, store=store)
    await bus.start()
    handler = Recorder(refuse_no_json)
    await bus.consume(TASKS, handler, prefetch=4)
    for number in range(12):
        await put(bus, TASKS, b"bad %d" % number)
    for number in range(20):
        await put(bus, TASKS, b"%d" % number)

    await until(lambda: {b"%d" % number for number in range(20)} <= set(handler.bodies), "all innocent ones")
    assert "go round on the retry ladder" in (bus.trouble() or "")
    await bus.stop(0)


@pytest.mark.parametrize("messages", [300, pytest.param(10_000, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])
async def test_generated_messages_in_all_queues_are_findable_and_innocent_traffic_flows(
    bus: RabbitBus,
    outsider: Outsider,
    namespace: str,
    amqp_url: str,
    messages: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Innocent messages come at a steady rate, as many as bad ones. Goodput: those handled within IN_TIME_S."""
    random = Random(seed := int(os.environ.get("SEED", "1")))
    sent: dict[bytes, float] = {}
    waits: list[float] = []

    async def note(delivery: Delivery) -> None:
        await refuse_no_json(delivery)
        waits.append(time.monotonic() - sent[delivery.body])

    for queue in QUEUES:
        await bus.consume(queue, note, prefetch=64)
    publishing = set[asyncio.Task[None]]()
    for number in range(messages):
        outsider.publish(namespace + random.choice(QUEUES), hostile_message(random))
        body = b"%d" % number
        sent[body] = time.monotonic()
        publishing.add(asyncio.create_task(put(bus, QUEUES[number % len(QUEUES)], body)))
        await asyncio.sleep(1 / RATE)  # real time: a rate

    await asyncio.gather(*publishing)
    await until(lambda: len(waits) == messages, "all innocent ones", 600)
    await until(lambda: _holds(bus, DEAD_LETTERS, messages), "every bad one", 600)
    goodput = sum(wait < IN_TIME_S for wait in waits) / messages
    print(f"seed {seed}: goodput {goodput:.3f}; the slowest took {max(waits):.2f} s")  # noqa: T201
    assert goodput >= 0.9
    assert lost_connections(caplog) == []
    letters = letters_of(amqp_url, namespace)
    assert len(letters) == messages
    assert all("not JSON" in held.letter.reason for held in letters)


def test_the_largest_frame_is_just_legal() -> None:
    assert len(write_properties(filled(hostile_texts()))) == ROOM == FRAME_MAX - 20
