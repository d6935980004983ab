"""The messages between a parent and its child: pickled, each object behind its length.

In a module of its own: a class of `__main__` can't be unpickled. Meant for a process and its own child only.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from schemas.messages.base import BaseModelIdentity
from services.agent.engines.engine import BatchEngine, TokenPiece

GENERATE = "generate"
GENERATE_IDS = "generate_ids"
LOAD_ADAPTER = "load_adapter"
UNLOAD_ADAPTER = "unload_adapter"
CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Order:
    """The first thing a child is told: what makes its engine, and how many samples to generate at once."""

    make: Callable[[], BatchEngine]
    max_batch: int


@dataclass(frozen=True, slots=True)
class Started:
    """The first thing a child says, unless it is the error why it can't."""

    identity: str
    base: BaseModelIdentity | None
    remarks: tuple[str, ...] = ()
    context: int | None = None
    """The context of an engine that takes token ids."""


@dataclass(frozen=True, slots=True)
class Call:
    """`number` is the caller's. CANCEL has the number of the request it takes back, and no answer."""

    number: int
    method: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """`result` is the error if it failed."""

    number: int
    result: Any


@dataclass(frozen=True, slots=True)
class Told:
    """New tokens, by the numbers of the calls they belong to."""

    pieces: tuple[tuple[int, TokenPiece], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """Something is being generated, and has got on. At most one a second."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The answers that became ready at once, and how many samples were generated at once then."""

    samples: int
    answers: tuple[Answer, ...]


LENGTH = struct.Struct(">Q")
READ_BYTES = 1 << 20
"""Read at once."""


def encode_frame(item: Any) -> bytes:
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
        """Return where the first object ends, or its length where that is not here yet."""
        if len(self._rest) < LENGTH.size:
            return LENGTH.size
        return LENGTH.size + int(LENGTH.unpack_from(self._rest)[0])
