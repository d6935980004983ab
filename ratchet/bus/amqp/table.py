"""AMQP field tables: the headers of a message. Reads every type RabbitMQ writes, and survives what outsiders write.

pika's own reader raises on a timestamp out of range, a NaN or an unknown type, and the connection with it: one
message would take down every consumer it reaches. Its writer knows no floating-point numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

_U32 = struct.Struct(">I")
_OCTETS = [bytes((octet,)) for octet in range(256)]
_LONG_STRING, _LONG, _INT = struct.Struct(">cI"), struct.Struct(">cq"), struct.Struct(">ci")
_DOUBLE, _DECIMAL, _TIME = struct.Struct(">cd"), struct.Struct(">cBi"), struct.Struct(">cQ")

_FIXED = {
    kind: struct.Struct(f">{code}")
    for kind, code in zip(b"bBsuIiLlfd", ("b", "B", "h", "H", "i", "I", "q", "q", "f", "d"), strict=True)
} | {ord("U"): struct.Struct(">h")}
UNREADABLE = (struct.error, IndexError, ValueError, OverflowError, RecursionError)
MAX_DEPTH = 32


def read_table(raw: bytes, offset: int) -> dict[str, Any]:
    """The table whose length stands at `offset`. Raises one of UNREADABLE where it is not one."""
    end = offset + 4 + _U32.unpack_from(raw, offset)[0]
    return _read_pairs(raw, offset + 4, end, 0)


def _read_pairs(raw: bytes, offset: int, end: int, depth: int) -> dict[str, Any]:
    if depth > MAX_DEPTH or end > len(raw):
        raise ValueError("a table nested too deeply, or longer than its message")
    table: dict[str, Any] = {}
    while offset < end:
        stop = offset + 1 + raw[offset]
        name = raw[offset + 1 : stop].decode("utf-8", "replace")
        table[name], offset = _read_value(raw, stop, depth)
    return table


def _read_value(raw: bytes, offset: int, depth: int) -> tuple[Any, int]:
    kind = raw[offset]
    offset += 1
    if kind in b"SxAF":
        start = offset + 4
        end = start + _U32.unpack_from(raw, offset)[0]
        if end > len(raw):
            raise ValueError("a value longer than its message")
        return _LONG_READERS[kind](raw, start, end, depth), end
    if fixed := _FIXED.get(kind):
        return fixed.unpack_from(raw, offset)[0], offset + fixed.size
    if kind == ord("t"):
        return bool(raw[offset]), offset + 1
    if kind == ord("T"):
        return _read_time(int.from_bytes(raw[offset : offset + 8], "big")), offset + 8
    if kind == ord("D"):
        scale, digits = struct.unpack_from(">Bi", raw, offset)
        return Decimal(digits).scaleb(-scale), offset + 5
    if kind == ord("V"):
        return None, offset
    raise ValueError(f"no AMQP field type {kind:#x}")


def _read_time(seconds: int) -> datetime | int:
    """Seconds since 1970; as a plain number where that is no date, because someone meant milliseconds."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return seconds


def _read_string(raw: bytes, start: int, end: int, _depth: int) -> str:
    return raw[start:end].decode("utf-8", "replace")


def _read_bytes(raw: bytes, start: int, end: int, _depth: int) -> bytes:
    return raw[start:end]


def _read_array(raw: bytes, offset: int, end: int, depth: int) -> list[Any]:
    if depth > MAX_DEPTH:
        raise ValueError("an array nested too deeply")
    values = []
    while offset < end:
        value, offset = _read_value(raw, offset, depth + 1)
        values.append(value)
    return values


def _read_nested(raw: bytes, start: int, end: int, depth: int) -> dict[str, Any]:
    return _read_pairs(raw, start, end, depth + 1)


_LONG_READERS: dict[int, Callable[[bytes, int, int, int], Any]] = {
    ord("S"): _read_string, ord("x"): _read_bytes, ord("A"): _read_array, ord("F"): _read_nested,
}  # fmt: skip


def short_string(text: str) -> bytes:
    """Raises ValueError beyond 255 bytes of UTF-8."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) > 255:
        raise ValueError(f"{text[:40]!r}… is longer than the 255 bytes AMQP allows here")
    return _OCTETS[len(encoded)] + encoded


def write_table(table: Mapping[str, Any]) -> bytes:
    """With its length in front. Raises ValueError for a value AMQP has no type for."""
    pairs = b"".join([short_string(name) + _write_value(value) for name, value in table.items()])
    return _U32.pack(len(pairs)) + pairs


def _write_value(value: Any) -> bytes:
    match value:
        case str():
            encoded = value.encode("utf-8", "replace")
            return _LONG_STRING.pack(b"S", len(encoded)) + encoded
        case bool():
            return b"t\x01" if value else b"t\x00"
        case int():
            return _write_int(value)
        case None:
            return b"V"
        case float():
            return _DOUBLE.pack(b"d", value)
        case bytes():
            return _LONG_STRING.pack(b"x", len(value)) + value
        case datetime():
            return _TIME.pack(b"T", max(0, int(value.timestamp())))
        case Mapping():
            return b"F" + write_table(value)
        case list() | tuple():
            written = b"".join(map(_write_value, value))
            return _LONG_STRING.pack(b"A", len(written)) + written
        case Decimal():
            return _write_decimal(value)
    raise ValueError(f"AMQP has no header type for {type(value).__name__}")


def _write_int(value: int) -> bytes:
    if -(2**31) <= value < 2**31:
        return _INT.pack(b"I", value)
    if -(2**63) <= value < 2**63:
        return _LONG.pack(b"l", value)
    raise ValueError(f"{value} does not fit an AMQP header")


def _write_decimal(value: Decimal) -> bytes:
    exponent = value.as_tuple().exponent
    if (
        not isinstance(exponent, int)
        or not 0 <= -exponent <= 255
        or abs(digits := int(value.scaleb(-exponent))) >= 2**31
    ):
        return _DOUBLE.pack(b"d", float(value))
    return _DECIMAL.pack(b"D", -exponent, digits)
