"""When frames leave: at once after a silence, together on a busy connection, and in their order. And what comes in."""

from __future__ import annotations

import asyncio
import struct
from itertools import pairwise

import pytest
from pika import URLParameters
from pika.exceptions import InvalidFrameError

from ratchet.bus.amqp.connection import GATHER_S, AmqpConnection
from ratchet.bus.amqp.frames import BODY, HEADER, METHOD, Properties, write_properties
from tests.waiting import settled


class Wire(asyncio.Transport):
    """Keeps what is written, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[float, bytes]] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append((asyncio.get_running_loop().time(), bytes(data)))

    @property
    def chunks(self) -> list[bytes]:
        return [data for _, data in self.written]


def connected() -> tuple[AmqpConnection, Wire]:
    """Its handshake has begun, and that was long enough ago."""
    connection, wire = AmqpConnection(URLParameters("amqp://nobody/")), Wire()
    connection.connection_made(wire)
    connection.flush()
    wire.written.clear()
    return connection, wire


async def test_what_is_sent_in_one_turn_leaves_in_one_write_and_after_a_silence_at_once() -> None:
    connection, wire = connected()
    await settled(2 * GATHER_S)

    connection.send(b"a")
    connection.send(b"b")
    assert wire.chunks == []
    for _ in range(2):
        await asyncio.sleep(0)

    assert wire.chunks == [b"ab"]


async def test_on_a_busy_connection_writes_are_apart_and_nothing_is_lost_or_overtaken() -> None:
    connection, wire = connected()

    for number in range(200):
        connection.send(b"%d," % number)
        await asyncio.sleep(0)
    await settled(3 * GATHER_S)

    assert b"".join(wire.chunks) == b"".join(b"%d," % number for number in range(200))
    times = [at for at, _ in wire.written]
    assert all(later - earlier >= 0.9 * GATHER_S for earlier, later in pairwise(times))


async def test_frames_of_pika_do_not_wait_and_take_along_what_does() -> None:
    connection, wire = connected()
    connection.send(b"first")
    await settled(2 * GATHER_S)

    connection.send(b"second")
    await asyncio.sleep(0)
    connection.send(b"third")
    connection._adapter_emit_data(b"pika")
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert b"".join(wire.chunks) == b"firstsecondthirdpika"


CHANNEL = 3
SENT = Properties(content_type="application/json", headers={"a": "b"}, message_id="m-1", type="task.v1")


def frame(kind: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, CHANNEL, len(payload)) + payload + b"\xce"


def delivery(tag: int, *parts: bytes) -> bytes:
    """As the broker sends it, the body in so many frames."""
    method = b"\x00\x3c\x00\x3c\x011" + struct.pack(">Q", tag) + b"\x01\x00\x05tasks"
    header = struct.pack(">HHQ", 60, 0, sum(map(len, parts))) + write_properties(SENT)
    return frame(METHOD, method) + frame(HEADER, header) + b"".join(frame(BODY, part) for part in parts)


@pytest.mark.parametrize("size", [1, 7, 40, 10_000])
async def test_deliveries_are_the_same_however_they_are_cut_up_on_their_way(size: int) -> None:
    connection, _ = connected()
    taken: list[tuple[int, bool, Properties, bytes]] = []
    connection.receivers[CHANNEL] = lambda *arrived: taken.append(arrived)
    raw = (
        delivery(1, b"one") + delivery(2) + delivery(3, b"th", b"ree") + delivery(4, b"x" * 500) + delivery(5, b"five")
    )

    for start in range(0, len(raw), size):
        connection.data_received(raw[start : start + size])

    assert [(tag, body) for tag, _, _, body in taken] == [
        (1, b"one"), (2, b""), (3, b"three"), (4, b"x" * 500), (5, b"five"),
    ]  # fmt: skip
    assert all(redelivered and properties == SENT for _, redelivered, properties, _ in taken)


@pytest.mark.parametrize("frame_without_end", [0, 1, 2])
async def test_a_delivery_whose_frame_has_no_end_is_refused(frame_without_end: int) -> None:
    connection, _ = connected()
    connection.receivers[CHANNEL] = lambda *_: pytest.fail("it was taken")
    raw = bytearray(delivery(1, b"one"))
    ends, offset = [], 0
    while offset < len(raw):
        offset += struct.unpack_from(">BHI", raw, offset)[2] + 8
        ends.append(offset - 1)
    raw[ends[frame_without_end]] = 0

    with pytest.raises(InvalidFrameError):
        connection.data_received(bytes(raw))
