"""AMQP's texts and field tables (the headers of a message): read whatever outsiders write, carried byte for byte.

pika's own reader raises on a timestamp out of range, a NaN or an unknown type, and the connection with it: one
message would take down every consumer it reaches. Its writer knows no floating-point numbers.
A text of the wire need not be UTF-8. In our process and in JSON each byte that is none is one character, U+EF80 to
U+EFFF (byte 0x80 to 0xFF); written, it is that byte again. A UTF-8 text that holds such characters is escaped likewise.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

_U32 = struct.Struct(">I")
_OCTETS = [bytes((octet,)) for octet in range(256)]
_LONG_STRING, _LONG, _INT = struct.Struct(">cI"), struct.Struct(">cq"), struct.Struct(">ci")
_DOUBLE, _DECIMAL, _TIME = struct.Struct(">cd"), struct.Struct(">cBi"), struct.Struct(">cQ")

_FIXED = {
    kind: struct.Struct(f">{code}")
    for kind, code in zip(b"bBsuIiLlfd", ("b", "B", "h", "H", "i", "I", "q", "q", "f", "d"), strict=True)
}
_STRING = ord("S")
_OTHER_SIZES = {ord("t"): 1, ord("T"): 8, ord("D"): 5, ord("V"): 0}
UNREADABLE = (struct.error, IndexError, ValueError, OverflowError, RecursionError)
MAX_DEPTH = 32

_SURROGATE = 0xDC00
_ESCAPE = 0xEF00
"""A byte from 0x80 on, added to it, is the character the byte stands as."""
_ESCAPES = re.compile("[\uef80-\uefff]+")
_TO_ESCAPE = re.compile("[\udc80-\udcff\uef80-\uefff]")


def text_of(raw: bytes) -> str:
    """Any bytes as well-formed text, and no two of them as the same."""
    if raw.isascii():
        return raw.decode("ascii")
    return _TO_ESCAPE.sub(_escape, raw.decode("utf-8", "surrogateescape"))


def bytes_of(text: str) -> bytes:
    """Return what `text_of` read. A lone surrogate, which no wire carries, becomes a question mark."""
    if text.isascii():
        return text.encode("ascii")
    return _ESCAPES.sub(_unescape, text.encode("utf-8", "replace").decode()).encode("utf-8", "surrogateescape")


def is_plain(text: str) -> bool:
    """False for a text that holds escaped bytes: it was no UTF-8, or is not to be told from such."""
    return text.isascii() or _ESCAPES.search(text) is None


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    octets = bytes((code - _SURROGATE,)) if code < _ESCAPE else found[0].encode()
    return "".join(chr(_ESCAPE + octet) for octet in octets)


def _unescape(found: re.Match[str]) -> str:
    return "".join(chr(_SURROGATE + ord(char) - _ESCAPE) for char in found[0])


class WireTable(dict[str, Any]):
    """Headers as they came: what we could read of them, and in `raw` every byte (without the length in front)."""

    __slots__ = ("raw",)

    def __init__(self, values: Mapping[str, Any], raw: bytes) -> None:
        super().__init__(values)
        self.raw = raw


def edit_headers(headers: Mapping[str, Any] | None, kept: Callable[[str], bool], added: Mapping[str, Any]) -> WireTable:
    """The headers whose names are `kept`, byte for byte as they came, and those `added`; of one name the added.

    Raises one of UNREADABLE for bytes that are no table, and ValueError for what AMQP can't carry.
    """
    raw = headers.raw if isinstance(headers, WireTable) else _pairs(headers or {})
    pieces: list[bytes] = []
    offset = 0
    while offset < len(raw):
        value = offset + 1 + raw[offset]
        end = _end_of_value(raw, value)
        if end > len(raw):
            raise ValueError("a value longer than its table")
        name = raw[offset + 1 : value].decode("utf-8", "replace")
        if name not in added and kept(name):
            pieces.append(raw[offset:end])
        offset = end
    values = {name: value for name, value in (headers or {}).items() if kept(name)} | dict(added)
    return WireTable(values, b"".join(pieces) + _pairs(added))


def read_table(raw: bytes, offset: int) -> WireTable:
    """The table whose length stands at `offset`. Raises one of UNREADABLE where it is not one."""
    start = offset + 4
    end = start + _U32.unpack_from(raw, offset)[0]
    return WireTable(_read_pairs(raw, start, end, 0), raw[start:end])


def read_headers(raw: bytes, offset: int) -> WireTable:
    """The same, without the values that can't be read: the others, ours among them, and all bytes are worth having."""
    try:
        return read_table(raw, offset)
    except UNREADABLE:
        pairs = raw[offset + 4 : offset + 4 + _U32.unpack_from(raw, offset)[0]]
        return WireTable(_readable_values(pairs), pairs)


def _readable_values(raw: bytes) -> dict[str, Any]:
    values: dict[str, Any] = {}
    offset = 0
    with suppress(*UNREADABLE):
        while offset < len(raw):
            value = offset + 1 + raw[offset]
            end = _end_of_value(raw, value)
            with suppress(*UNREADABLE):
                values[raw[offset + 1 : value].decode("utf-8", "replace")] = _read_value(raw, value, 0)[0]
            offset = end
    return values


def _end_of_value(raw: bytes, offset: int) -> int:
    kind = raw[offset]
    if kind in b"SxAF":
        return offset + 5 + int(_U32.unpack_from(raw, offset + 1)[0])
    if fixed := _FIXED.get(kind):
        return offset + 1 + fixed.size
    if kind in _OTHER_SIZES:
        return offset + 1 + _OTHER_SIZES[kind]
    raise ValueError(f"no AMQP field type {kind:#x}")


def is_well_formed(raw: bytes) -> bool:
    """Would RabbitMQ take these bytes for a table? However deep it is: this is no recursion."""
    left = [(0, len(raw), True)]
    try:
        while left:
            offset, end, named = left.pop()
            while offset < end:
                offset += 1 + raw[offset] if named else 0
                after, kind = _end_of_value(raw, offset), raw[offset]
                if after > end:
                    return False
                if kind in b"AF":
                    left.append((offset + 5, after, kind == ord("F")))
                elif kind in b"fd":
                    _finite(_FIXED[kind].unpack_from(raw, offset + 1)[0])
                offset = after
    except UNREADABLE:
        return False
    return True


def _read_pairs(raw: bytes, offset: int, end: int, depth: int) -> dict[str, Any]:
    if depth > MAX_DEPTH or end > len(raw):
        raise ValueError("a table nested too deeply, or longer than its message")
    table: dict[str, Any] = {}
    while offset < end:
        stop = offset + 1 + raw[offset]
        name = raw[offset + 1 : stop].decode("utf-8", "replace")
        table[name], offset = _read_value(raw, stop, depth)
    _require_end(offset, end)
    return table


def _require_end(offset: int, end: int) -> None:
    if offset != end:
        raise ValueError("a value longer than what it is in")


def _read_value(raw: bytes, offset: int, depth: int) -> tuple[Any, int]:
    kind = raw[offset]
    offset += 1
    if kind in b"SxAF":
        start = offset + 4
        end = start + int(_U32.unpack_from(raw, offset)[0])
        if end > len(raw):
            raise ValueError("a value longer than its message")
        if kind == _STRING:
            return raw[start:end].decode("utf-8", "replace"), end
        return _LONG_READERS[kind](raw, start, end, depth), end
    if fixed := _FIXED.get(kind):
        return _finite(fixed.unpack_from(raw, offset)[0]), offset + fixed.size
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


def _finite(number: float) -> float:
    """RabbitMQ closes the connection that sends another."""
    if not math.isfinite(number):
        raise ValueError(f"AMQP carries no {number}")
    return number


def _read_time(seconds: int) -> datetime | int:
    """Seconds since 1970; as a plain number where that is no date, because someone meant milliseconds."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return seconds


def _read_bytes(raw: bytes, start: int, end: int, _depth: int) -> bytes:
    return raw[start:end]


def _read_array(raw: bytes, offset: int, end: int, depth: int) -> list[Any]:
    if depth > MAX_DEPTH:
        raise ValueError("an array nested too deeply")
    values = []
    while offset < end:
        value, offset = _read_value(raw, offset, depth + 1)
        values.append(value)
    _require_end(offset, end)
    return values


def _read_nested(raw: bytes, start: int, end: int, depth: int) -> dict[str, Any]:
    return _read_pairs(raw, start, end, depth + 1)


_LONG_READERS: dict[int, Callable[[bytes, int, int, int], Any]] = {
    ord("x"): _read_bytes, ord("A"): _read_array, ord("F"): _read_nested,
}  # fmt: skip


def short_string(text: str) -> bytes:
    """Raises ValueError beyond 255 bytes."""
    encoded = text.encode("ascii") if text.isascii() else bytes_of(text)
    if len(encoded) > 255:
        raise ValueError(f"{text[:40]!r}… is longer than the 255 bytes AMQP allows here")
    return _OCTETS[len(encoded)] + encoded


constant_string = lru_cache(maxsize=64)(short_string)
"""Encodes texts of which there are few."""


def write_table(table: Mapping[str, Any]) -> bytes:
    """Encode the table with its length in front. Raises ValueError for a value AMQP has no type for."""
    pairs = table.raw if isinstance(table, WireTable) else _pairs(table)
    return _U32.pack(len(pairs)) + pairs


def _pairs(table: Mapping[str, Any]) -> bytes:
    return b"".join([constant_string(name) + _write_value(value) for name, value in table.items()])


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
            return _DOUBLE.pack(b"d", _finite(value))
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
