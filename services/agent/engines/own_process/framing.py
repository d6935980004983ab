"""Python objects on a stream of bytes: pickled, each behind its length. For a process and its own child only."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from typing import Any

LENGTH = struct.Struct(">Q")
READ_BYTES = 1 << 20
"""Read at once."""


def framed(item: Any) -> bytes:
    """Raises what pickle raises."""
    body = pickle.dumps(item, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body


class Frames:
    """Takes the stream in whatever pieces it comes."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def take(self, piece: bytes) -> Iterator[Any]:
        """The objects that are whole now, in order."""
        self._rest += piece
        while (end := self._end()) <= len(self._rest):
            body = bytes(self._rest[LENGTH.size : end])
            del self._rest[:end]
            yield pickle.loads(body)

    def _end(self) -> int:
        """Of the first object; at least of its length."""
        if len(self._rest) < LENGTH.size:
            return LENGTH.size
        return LENGTH.size + int(LENGTH.unpack_from(self._rest)[0])
