"""Our frames against pika's reader and writer, and headers that only outsiders write."""

from __future__ import annotations

import struct
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import frame, spec

from ratchet.bus.amqp.frames import (
    Properties,
    ack_frame,
    publish_frames,
    read_deliver,
    read_properties,
    write_properties,
)
from ratchet.bus.amqp.table import UNREADABLE, is_well_formed, read_table, write_table

short_texts = st.text(st.characters(exclude_categories=["Cs", "Co"]), max_size=60)
"""Without private characters: some of them stand for bytes that are no UTF-8."""
octets = st.integers(0, 255)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | short_texts
    | st.binary(max_size=20)
    | st.decimals(-1000, 1000, places=2)
    | st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1)).map(lambda t: t.replace(microsecond=0, tzinfo=UTC)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(short_texts, inner, max_size=3),
    max_leaves=8,
)
tables = st.dictionaries(short_texts, values, max_size=5)
properties = st.builds(
    Properties,
    content_type=st.none() | short_texts,
    content_encoding=st.none() | short_texts,
    headers=st.none() | tables,
    delivery_mode=st.none() | st.sampled_from([1, 2]),
    priority=st.none() | octets,
    correlation_id=st.none() | short_texts,
    reply_to=st.none() | short_texts,
    expiration=st.none() | short_texts,
    message_id=st.none() | short_texts,
    timestamp=st.none() | st.integers(0, 2**64 - 1),
    type=st.none() | short_texts,
    user_id=st.none() | short_texts,
    app_id=st.none() | short_texts,
)


def pika_frames(raw: bytes) -> list[Any]:
    found = []
    while raw:
        used, one = frame.decode_frame(raw)
        assert used
        found.append(one)
        raw = raw[used:]
    return found


@given(properties)
def test_pika_reads_the_properties_we_write(given: Properties) -> None:
    read = spec.BasicProperties().decode(write_properties(given))
    assert {name: getattr(read, name) for name in asdict(given)} == asdict(given)


@given(properties)
def test_we_read_the_properties_pika_writes(given: Properties) -> None:
    written = b"".join(spec.BasicProperties(**asdict(given)).encode())
    assert read_properties(b"..." + written, 3) == given


@given(st.dictionaries(short_texts, values | st.floats(allow_nan=False, allow_infinity=False), max_size=5))
def test_headers_survive_the_way_there_and_back(table: dict[str, Any]) -> None:
    assert read_table(write_table(table), 0) == table


@given(st.binary(max_size=400))
def test_any_bytes_are_a_table_or_an_expected_error(raw: bytes) -> None:
    try:
        table = read_table(raw, 0)
    except UNREADABLE:
        return
    assert isinstance(table, dict)


@given(st.binary(max_size=3000), st.sampled_from([4096, 300]))
def test_pika_reads_the_messages_we_write(body: bytes, frame_max: int) -> None:
    sent = Properties(type="task.v1", message_id="m")
    raw = publish_frames(7, "ratchet", "tasks", sent, body, mandatory=True, frame_max=frame_max)

    method, header, *parts = pika_frames(raw)
    assert (method.method.exchange, method.method.routing_key, method.method.mandatory) == ("ratchet", "tasks", True)
    assert (header.body_size, header.properties.type) == (len(body), "task.v1")
    assert b"".join(part.fragment for part in parts) == body
    assert {one.channel_number for one in (method, header, *parts)} == {7}
    assert all(len(part.fragment) <= frame_max - 8 for part in parts)


@pytest.mark.parametrize("multiple", [False, True])
def test_pika_reads_the_acks_we_write(multiple: bool) -> None:
    (ack,) = pika_frames(ack_frame(3, 2**40, multiple))
    assert isinstance(ack.method, spec.Basic.Ack)
    assert (ack.channel_number, ack.method.delivery_tag, ack.method.multiple) == (3, 2**40, multiple)


@pytest.mark.parametrize("redelivered", [False, True])
def test_we_read_the_deliveries_pika_writes(redelivered: bool) -> None:
    written = b"".join(spec.Basic.Deliver("consumer", 2**33, redelivered, "exchange", "key").encode())
    assert read_deliver(b".." + written, 2) == (2**33, redelivered)


BROKEN_HEADERS = {
    "a time in milliseconds": b"\x01tT" + struct.pack(">Q", 1_700_000_000_000),
    "not a number": b"\x01dd" + struct.pack(">d", float("nan")),
    "an unknown type": b"\x01?Z",
    "text that is not UTF-8": b"\x01sS\x00\x00\x00\x02\xff\xfe",
    "a string longer than the table": b"\x01sS\x00\x00\xff\xff",
    "a name longer than the table": b"\xffabc",
    "tables without end": b"\x01xF\x00\x00\xff\xff" * 200,
}


@pytest.mark.parametrize("pairs", BROKEN_HEADERS.values(), ids=BROKEN_HEADERS)
def test_headers_that_break_others_leave_the_rest_of_the_message_readable(pairs: bytes) -> None:
    flags = struct.pack(">H", 1 << 13 | 1 << 7)
    read = read_properties(flags + struct.pack(">I", len(pairs)) + pairs + b"\x04m-42", 0)
    assert read.message_id == "m-42"


@given(st.dictionaries(short_texts, values, max_size=5))
def test_what_we_write_is_well_formed_and_cut_or_lengthened_it_is_not(table: dict[str, Any]) -> None:
    raw = write_table(table)[4:]
    assert is_well_formed(raw)
    assert not is_well_formed(raw + b"\xff")
    assert not raw or not is_well_formed(raw[:-1])


def test_a_table_may_be_deeper_than_python_recurses() -> None:
    value = b"t\x01"
    for _ in range(5000):
        value = b"A" + struct.pack(">I", len(value)) + value
    assert is_well_formed(b"\x01n" + value)


@pytest.mark.parametrize(
    "pairs", [pairs for name, pairs in BROKEN_HEADERS.items() if "milli" not in name and "UTF" not in name]
)
def test_what_rabbitmq_refuses_is_not_well_formed(pairs: bytes) -> None:
    assert not is_well_formed(pairs)


def test_a_time_that_is_no_date_is_read_as_its_number() -> None:
    pairs = BROKEN_HEADERS["a time in milliseconds"]
    assert read_table(struct.pack(">I", len(pairs)) + pairs, 0) == {"t": 1_700_000_000_000}


@pytest.mark.parametrize("table", [{"x": object()}, {"x": 2**63}, {"x" * 256: 1}, {"x": {1, 2}}, {"x": float("nan")}])
def test_what_amqp_cannot_carry_is_refused(table: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="AMQP"):
        write_table(table)
