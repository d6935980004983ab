"""The five AMQP frames of the hot path, in bytes: publish, deliver, ack, nack and the properties of a message. Pure.

Everything else (handshake, channels, declarations, heartbeats) is pika's. Names and numbers are those of AMQP 0-9-1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from operator import attrgetter
from typing import Any

from ratchet.bus.amqp.table import constant_string, read_headers, short_string, text_of, write_table

METHOD, HEADER, BODY = 1, 2, 3
FRAME_END = 0xCE
FRAME_OVERHEAD = 8
"""Bytes: 7 in front (type, channel, size), 1 behind."""
DELIVER, ACK, NACK = 0x003C003C, 0x003C0050, 0x003C0078

PERSISTENT = 2
"""The delivery mode of a message that survives a restart of the broker."""

FRAME_START = struct.Struct(">BHI")
METHOD_ID = struct.Struct(">I")
TAG = struct.Struct(">Q")
_ACK_FRAME = struct.Struct(">BHIIQBB")
CONTENT_START = struct.Struct(">BHIHHQ")
"""A header frame up to its properties: type, channel, size, class, weight, size of the body."""
_BODY_START = struct.Struct(">BBHI")
"""The end of the frame before, and a body frame up to its content."""
_U16 = struct.Struct(">H")
_PUBLISH = b"\x00\x3c\x00\x28\x00\x00"


@dataclass(slots=True)
class Properties:
    """The properties of a message, in the order AMQP writes them.

    Texts are those of `ratchet.bus.amqp.table.text_of`.
    """

    content_type: str | None = None
    content_encoding: str | None = None
    headers: Mapping[str, Any] | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


_BY_FLAG = [(1 << (15 - index), field.name) for index, field in enumerate(fields(Properties))]
_TEXTS = frozenset(field.name for field in fields(Properties)) - {"headers", "delivery_mode", "priority", "timestamp"}


@lru_cache(maxsize=256)
def _property_names(flags: int) -> tuple[tuple[str, bool], ...]:
    """The names, and whether each is a text."""
    return tuple((name, name in _TEXTS) for flag, name in _BY_FLAG if flags & flag)


def read_properties(raw: bytes, offset: int) -> Properties:
    """The flags and what they announce. Headers that can't be read are empty: the rest is worth having.

    Raises one of `ratchet.bus.amqp.table.UNREADABLE` where the block itself is broken.
    """
    flags: int = _U16.unpack_from(raw, offset)[0]
    offset += 2
    properties = Properties()
    for name, is_text in _property_names(flags):
        if is_text:
            stop = offset + 1 + raw[offset]
            text = raw[offset + 1 : stop]
            setattr(properties, name, text.decode("ascii") if text.isascii() else text_of(text))
            offset = stop
        elif name == "headers":
            properties.headers = read_headers(raw, offset)
            offset += 4 + int(METHOD_ID.unpack_from(raw, offset)[0])
        elif name == "timestamp":
            properties.timestamp = TAG.unpack_from(raw, offset)[0]
            offset += 8
        else:
            setattr(properties, name, raw[offset])
            offset += 1
    return properties


def _octet(value: int) -> bytes:
    return bytes((value,))


_WRITERS: dict[str, Callable[[Any], bytes]] = dict.fromkeys(_TEXTS, short_string) | {
    "headers": write_table,
    "timestamp": TAG.pack,
    "delivery_mode": lru_cache(maxsize=256)(_octet),
    "priority": _octet,
    "content_type": constant_string,
    "type": constant_string,
}
_FLAGS, _IN_ORDER = [flag for flag, _ in _BY_FLAG], [_WRITERS[name] for _, name in _BY_FLAG]
_values = attrgetter(*(name for _, name in _BY_FLAG))


def write_properties(properties: Properties) -> bytes:
    """Raises ValueError for what AMQP can't carry."""
    flags = 0
    pieces = [b""]
    for value, flag, write in zip(_values(properties), _FLAGS, _IN_ORDER, strict=True):
        if value is not None:
            flags |= flag
            pieces.append(write(value))
    pieces[0] = _U16.pack(flags)
    return b"".join(pieces)


@lru_cache(maxsize=1024)
def _publish_method(channel: int, exchange: str, routing_key: str, mandatory: bool) -> bytes:
    payload = _PUBLISH + short_string(exchange) + short_string(routing_key) + bytes((mandatory,))
    return FRAME_START.pack(METHOD, channel, len(payload)) + payload + b"\xce"


def publish_frames(
    channel: int,
    exchange: str,
    routing_key: str,
    properties: Properties,
    body: bytes,
    *,
    mandatory: bool,
    frame_max: int,
) -> bytes:
    """A whole message: method, header, and as many body frames as the negotiated `frame_max` (bytes) makes of it.

    Raises ValueError for what AMQP can't carry: all properties together must fit one frame.
    """
    written = write_properties(properties)
    header, largest = 12 + len(written), frame_max - FRAME_OVERHEAD
    if header > largest:
        raise ValueError(f"its properties take {header:,} bytes, and a frame holds {largest:,}")
    pieces = [
        _publish_method(channel, exchange, routing_key, mandatory),
        CONTENT_START.pack(HEADER, channel, header, 60, 0, len(body)),
        written,
    ]
    for start in range(0, len(body), largest):
        part = body[start : start + largest]
        pieces += (_BODY_START.pack(FRAME_END, BODY, channel, len(part)), part)
    pieces.append(b"\xce")
    return b"".join(pieces)


def ack_frame(channel: int, tag: int, multiple: bool) -> bytes:
    return _ACK_FRAME.pack(METHOD, channel, 13, ACK, tag, multiple, FRAME_END)


def read_deliver(raw: bytes, offset: int) -> tuple[int, bool]:
    """Delivery tag and redelivered flag of a basic.deliver whose arguments start at `offset`."""
    offset += 1 + raw[offset]
    return TAG.unpack_from(raw, offset)[0], bool(raw[offset + 8] & 1)
