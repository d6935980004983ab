"""Sending on a message of others: byte for byte where a frame holds it, else whole inside another one's body. Pure.

AMQP wants all properties of a message in one frame, and a sender may have filled it: with a header of ours it would not
fit, and the broker closes the connection that tries. What would lose the message on its way, or have it refused, is
left out and named in the header `x-ratchet-note`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ratchet.bus.amqp.frames import PERSISTENT, Properties, read_properties, write_properties
from ratchet.bus.amqp.table import UNREADABLE, WireTable, edit_headers, is_well_formed
from ratchet.bus.retry_policy import NOTE, SENT_BY, is_routing, shorten_reason, travels
from ratchet.service.telemetry import TRACE_HEADER, WELL_FORMED

LARGEST_BODY = 16 * 1024 * 1024
"""Bytes. RabbitMQ 4 closes the connection that publishes more."""
CLAIM = "x-ratchet-claim"
"""The header that says where the message is that this one stands for: INSIDE its body, or the sha256 that names its
file."""
INSIDE = "inside"
CONTENT_TYPE = "application/vnd.ratchet.message"
_MAGIC = b"ratchet message 1\n"
_SIZE = struct.Struct(">I")


class WireMessage(NamedTuple):
    """A message as AMQP carries it: the properties and the body."""

    properties: Properties
    body: bytes


def sent_on(message: WireMessage, added: Mapping[str, Any], user: str | None = None) -> WireMessage:
    """The message with these headers added: persistent, and without what would lose it or have it refused.

    `user`: the broker's user that publishes it. Its name vouches for the header SENT_BY, so it is not put on a message
    whose first publisher the broker did not check.
    """
    properties = message.properties
    sender = properties.user_id
    headers = {} if properties.headers is None else properties.headers
    notes = [
        f"{name}={value}" for name in ("expiration", "user_id") if (value := getattr(properties, name)) is not None
    ]
    notes += [f"header {name}" for name in headers if is_routing(name)]
    if sender is not None and sender != user:
        added = {**added, SENT_BY: sender}
    vouched = None if sender is None else user
    try:
        table = edit_headers(headers, travels, _add_note(added, notes))
    except UNREADABLE:
        table = edit_headers(None, travels, _add_note(added, [*notes, "headers that can't be read"]))
    return message._replace(
        properties=replace(properties, headers=table, delivery_mode=PERSISTENT, expiration=None, user_id=vouched)
    )


def without_headers(message: WireMessage, added: Mapping[str, Any]) -> WireMessage:
    """The same, its own headers left out but for the trace: the last resort."""
    headers = {} if message.properties.headers is None else message.properties.headers
    carried = headers.get(TRACE_HEADER)
    trace = {TRACE_HEADER: carried} if isinstance(carried, str) and WELL_FORMED.fullmatch(carried) else {}
    if (user := message.properties.user_id or headers.get(SENT_BY)) is not None:
        added = {**added, SENT_BY: user}
    size = len(headers.raw) if isinstance(headers, WireTable) else 0
    table = edit_headers(trace, travels, _add_note(added, [f"headers of {size:,} bytes, for which there was no room"]))
    return message._replace(
        properties=replace(message.properties, headers=table, delivery_mode=PERSISTENT, expiration=None, user_id=None)
    )


def pack_message(message: WireMessage) -> bytes:
    """Properties and body as one run of bytes, for a body or a file."""
    properties = write_properties(message.properties)
    return b"".join((_MAGIC, _SIZE.pack(len(properties)), properties, message.body))


def unpack_message(data: bytes) -> WireMessage:
    """Return what `pack_message` wrote. Raises ValueError for anything else."""
    if not data.startswith(_MAGIC):
        raise ValueError("it holds no message")
    try:
        start = len(_MAGIC) + _SIZE.size
        end = start + _SIZE.unpack_from(data, len(_MAGIC))[0]
        properties = read_properties(data[:end], start)
    except UNREADABLE as error:
        raise ValueError(f"it holds no message: {error}") from None
    headers = properties.headers
    if isinstance(headers, WireTable) and not is_well_formed(headers.raw):
        raise ValueError("its headers are none that a broker takes")
    return WireMessage(properties, data[end:])


def stand_in(message: WireMessage, claim: str, added: Mapping[str, Any], body: bytes = b"") -> WireMessage:
    """A small message in its place, which says where it is; its id and type are the same."""
    given = message.properties
    properties = Properties(
        content_type=CONTENT_TYPE,
        headers={**added, CLAIM: claim},
        delivery_mode=PERSISTENT,
        message_id=given.message_id,
        type=given.type,
    )
    return WireMessage(properties, body)


def inside_another(message: WireMessage, added: Mapping[str, Any]) -> WireMessage | None:
    """The message whole in the body of its stand-in; None where no broker takes so large a body."""
    body = pack_message(message)
    return stand_in(message, INSIDE, added, body) if len(body) <= LARGEST_BODY else None


def unwrap(message: WireMessage) -> WireMessage:
    """The message that is inside this one, or this one itself: outsiders may write our headers too."""
    if (message.properties.headers or {}).get(CLAIM) != INSIDE:
        return message
    try:
        return unpack_message(message.body)
    except ValueError:
        return message


def _add_note(added: Mapping[str, Any], left_out: list[str]) -> dict[str, Any]:
    return {**added, NOTE: shorten_reason("left out: " + "; ".join(left_out))} if left_out else dict(added)
