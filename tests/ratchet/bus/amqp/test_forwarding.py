"""What outsiders wrote is read, sent on and packed without a byte lost, and never larger than AMQP allows."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.bus.amqp.forwarding import (
    CLAIM,
    INSIDE,
    WireMessage,
    inside_another,
    pack_message,
    sent_on,
    stand_in,
    unpack_message,
    unwrap,
    without_headers,
)
from ratchet.bus.amqp.frames import Properties, publish_frames, read_properties, write_properties
from ratchet.bus.amqp.table import WireTable, bytes_of, is_plain, text_of
from ratchet.bus.protocol import Delivery
from ratchet.bus.retry_policy import QUEUE, REASON
from ratchet.bus.topology import DEAD_LETTERS, TASKS
from ratchet.service.errors import Reject
from schemas.messages.work import Arm, Sampling, Work
from tests.memory_bus import MemoryBus
from tests.ratchet.bus.bus_kit import Recorder, put, quick_topology
from tests.ratchet.bus.hostile import FRAME_MAX, ROOM, filled, hostile_messages, hostile_texts
from tests.waiting import until

WORK = Work(
    task_id="t",
    input="x",
    agent_id="small",
    deadline=datetime(2026, 1, 1, tzinfo=UTC),
    admitted_at=datetime(2026, 1, 1, tzinfo=UTC),
    arm=Arm(sequence=0),
    sampling=Sampling(),
)
ADDED = {REASON: "why " * 200, QUEUE: "tasks"}


def fits_a_frame(message: WireMessage) -> bool:
    try:
        publish_frames(1, "ratchet", "tasks", *message, mandatory=False, frame_max=FRAME_MAX)
    except ValueError:
        return False
    return True


def as_read(message: WireMessage) -> WireMessage:
    return message._replace(properties=read_properties(write_properties(message.properties), 0))


@given(st.binary(max_size=255))
def test_any_bytes_are_a_text_that_is_written_as_those_bytes(raw: bytes) -> None:
    text = text_of(raw)
    assert bytes_of(text) == raw
    assert len(text) <= 255
    assert text.encode().decode() == text  # well-formed: JSON, SQLite and logs take it


@given(st.text(st.characters(exclude_categories=["Cs", "Co"])))
def test_a_plain_text_stays_as_it_is(text: str) -> None:
    assert text_of(text.encode()) == text
    assert is_plain(text)


@given(st.binary(min_size=1, max_size=255))
def test_a_correlation_id_goes_through_a_logged_work_unchanged(raw: bytes) -> None:
    logged = WORK.model_copy(update={"correlation_id": text_of(raw)}).encode()
    assert bytes_of(Work.decode(logged).correlation_id or "") == raw


@given(hostile_messages)
def test_a_message_sent_on_has_every_byte_it_came_with(message: WireMessage) -> None:
    arrived = as_read(message)

    whole = sent_on(arrived, {})

    names = {field.name for field in fields(Properties)} - {"headers"}
    for name in names - {"delivery_mode", "expiration", "user_id"}:
        assert getattr(whole.properties, name) == getattr(message.properties, name)
    assert whole.body == message.body
    kept, came = whole.properties.headers, message.properties.headers
    assert isinstance(kept, WireTable)
    if isinstance(came, WireTable) and not any(name in came.raw for name in (b"x-death", b"x-delivery-count")):
        assert kept.raw == came.raw


@given(hostile_messages)
def test_a_message_fits_a_frame_or_is_whole_inside_another_that_does(message: WireMessage) -> None:
    whole = sent_on(as_read(message), ADDED)
    if not fits_a_frame(whole):
        other = inside_another(whole, ADDED)
        assert other is not None
        assert fits_a_frame(other)
        assert other.properties.headers is not None and other.properties.headers[REASON] == ADDED[REASON]
        back = unwrap(as_read(other))
        assert write_properties(back.properties) == write_properties(whole.properties)
        assert back.body == whole.body
    assert fits_a_frame(without_headers(as_read(message), ADDED))


@given(hostile_messages)
def test_what_we_add_can_be_read_beside_headers_that_cannot(message: WireMessage) -> None:
    headers = as_read(sent_on(as_read(message), ADDED)).properties.headers
    assert headers is not None
    assert (headers[REASON], headers[QUEUE]) == (ADDED[REASON], "tasks")


def test_the_largest_legal_properties_do_not_fit_with_a_header_more() -> None:
    largest = WireMessage(filled(hostile_texts()), b"")
    assert len(write_properties(largest.properties)) == ROOM
    assert fits_a_frame(largest)
    assert not fits_a_frame(sent_on(as_read(largest), ADDED))


def test_what_no_body_holds_is_inside_none() -> None:
    assert inside_another(WireMessage(filled(Properties()), bytes(16 * 1024 * 1024)), {}) is None


@given(st.binary(max_size=300))
def test_any_bytes_are_a_packed_message_or_none(raw: bytes) -> None:
    for data in (raw, b"ratchet message 1\n" + raw):
        try:
            message = unpack_message(data)
        except ValueError:
            continue
        assert write_properties(message.properties)


@pytest.mark.parametrize("pairs", [b"\x01dd\x7f\xf8" + bytes(6), b"\x01uU\x00\x01", b"\x01sS\x00\x00\xff\xff"])
def test_headers_no_broker_has_checked_are_not_taken_from_inside(pairs: bytes) -> None:
    crafted = pack_message(WireMessage(Properties(headers=WireTable({}, pairs)), b"[1]"))
    outside = stand_in(WireMessage(Properties(), b""), INSIDE, {}, crafted)
    assert unwrap(outside) is outside


def test_a_claim_that_is_no_message_leaves_it_as_it_is() -> None:
    message = WireMessage(Properties(headers={CLAIM: INSIDE}), b"[1]")
    assert unwrap(message) is message


@given(hostile_messages)
async def test_on_the_double_too_innocent_messages_pass_and_each_bad_one_says_why(message: WireMessage) -> None:
    bus = MemoryBus(quick_topology())
    await bus.start()
    arrived = as_read(message).properties

    async def refuse(delivery: Delivery) -> None:
        if delivery.body.startswith(b"\xff"):
            raise Reject(f"no JSON, and its type is {delivery.type!r}")

    handler = Recorder(refuse)
    await bus.consume(TASKS, handler, prefetch=2)
    await bus.publish(
        TASKS,
        message.body,
        type=arrived.type or "",
        message_id=arrived.message_id or "",
        reply_to=arrived.reply_to,
        correlation_id=arrived.correlation_id,
        headers=arrived.headers,
    )
    await put(bus, TASKS, b"1")
    await until(lambda: len(handler.got) == 2, "both")
    await bus.stop(1)

    (letter,) = bus.waiting(DEAD_LETTERS)
    assert (letter.body, letter.correlation_id) == (message.body, arrived.correlation_id)
    assert 0 < len(letter.headers[REASON]) <= 1000


def test_notes_name_what_was_left_out() -> None:
    given = Properties(expiration="5", headers={"CC": ["tasks"], "x": 1})
    headers = sent_on(WireMessage(given, b""), {}).properties.headers
    assert headers == {"x": 1, "x-ratchet-note": "left out: expiration=5; header CC"}
    assert replace(given, headers=None).expiration == "5"
