"""Messages only an outsider sends: legal on the wire, and made to do harm. For hypothesis, and by a seed."""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields, replace
from random import Random

from hypothesis import strategies as st

from ratchet.bus.amqp.channel import open_channel
from ratchet.bus.amqp.connection import AmqpConnection, connection_parameters, open_connection
from ratchet.bus.amqp.forwarding import WireMessage
from ratchet.bus.amqp.frames import Properties, publish_frames, write_properties
from ratchet.bus.amqp.table import WireTable, text_of

FRAME_MAX = 131_072
ROOM = FRAME_MAX - 8 - 12
"""Most bytes that all properties of a message may take together."""
BROKERS_OWN = {"headers", "delivery_mode", "priority", "timestamp", "expiration", "user_id"}
TEXTS = [field.name for field in fields(Properties) if field.name not in BROKERS_OWN]
"""Text properties in which the broker takes any bytes."""
NOT_UTF8 = bytes(range(0x80, 0x100)) + bytes(range(0x80, 0xFF))
assert len(NOT_UTF8) == 255


def hostile_texts(raw: bytes = NOT_UTF8) -> Properties:
    """Return every property that an outsider may fill, with these bytes."""
    return Properties(**{name: text_of(raw) for name in TEXTS}, priority=255, timestamp=2**64 - 1)


def filled(properties: Properties, room: int = ROOM) -> Properties:
    """Add a header so large that all properties together take `room` bytes."""
    before = properties.headers.raw if isinstance(properties.headers, WireTable) else b""
    start = len(write_properties(replace(properties, headers=WireTable({}, before)))) + 1 + 6 + 4
    value = b"\xff" * (room - start)
    return replace(properties, headers=WireTable({}, before + b"\x05largeS" + struct.pack(">I", len(value)) + value))


_SIMPLE = (
    b"t\x05", b"b\x80", b"B\xff", b"s\x80\x00", b"u\xff\xff", b"I\x80\x00\x00\x00", b"i\xff\xff\xff\xff",
    b"l" + b"\x80" * 8, b"f\x7f\x7f\xff\xff", b"d\xff\xef" + b"\xff" * 6, b"D\xff\x80\x00\x00\x00", b"T" + b"\xff" * 8,
    b"V", b"S\x00\x00\x00\x03\xff\xfe\xfd", b"x\x00\x00\x00\x02\x00\xff", b"A\x00\x00\x00\x00", b"F\x00\x00\x00\x00",
)  # fmt: skip


def _nested(random: Random, value: bytes, depth: int) -> bytes:
    for _ in range(depth):
        value = b"A" + struct.pack(">I", len(value)) + value if random.random() < 0.5 else _table(b"\x01n" + value)
    return value


def _table(pairs: bytes) -> bytes:
    return b"F" + struct.pack(">I", len(pairs)) + pairs


_NAMES = (
    b"x-ratchet-attempt", b"x-ratchet-claim", b"x-ratchet-reason", b"x-ratchet-at", b"x-ratchet-queue", b"x-death",
    b"x-delivery-count", b"traceparent", b"\xff\xfe", b"", b"x-ratchet-note", b"x-ratchet-attempts", b"same", b"same",
)  # fmt: skip


def hostile_headers(random: Random) -> WireTable:
    pairs = b""
    for _ in range(random.randrange(6)):
        name = random.choice(_NAMES)
        pairs += bytes((len(name),)) + name + _nested(random, random.choice(_SIMPLE), random.choice((0, 0, 1, 40)))
    return WireTable({}, pairs)


def hostile_message(random: Random) -> WireMessage:
    """Return a message that no handler takes: its body is not JSON."""
    texts = {
        name: text_of(random.randbytes(random.choice((0, 1, 100, 255)))) for name in TEXTS if random.random() < 0.5
    }
    properties = Properties(**texts, headers=hostile_headers(random))
    if random.random() < 0.3:
        properties = filled(properties, random.choice((ROOM, ROOM - 1, ROOM - 100, random.randrange(120_000, ROOM))))
    return WireMessage(properties, b"\xff" + random.randbytes(random.choice((0, 10, 1000))))


hostile_messages = st.integers(0, 2**32).map(lambda seed: hostile_message(Random(seed)))


@dataclass
class Outsider:
    """Publishes bytes as they are, without confirms, over a connection of its own."""

    connection: AmqpConnection
    channel: int

    @classmethod
    async def connect(cls, amqp_url: str) -> Outsider:
        connection = await open_connection(connection_parameters(amqp_url, "outsider"))
        return cls(connection, (await open_channel(connection)).number)

    def publish(self, queue: str, message: WireMessage) -> None:
        frames = publish_frames(self.channel, "", queue, *message, mandatory=False, frame_max=FRAME_MAX)
        self.connection.send(frames)

    async def close(self) -> None:
        assert self.connection.is_open, "the broker took none of it"
        self.connection.flush()
        self.connection.close()
        await self.connection.closed
