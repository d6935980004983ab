"""Read a safetensors file: its header, checked against the file, and the bytes of its tensors.

Format: 8 bytes little-endian header length, a JSON header (name -> dtype, shape, data_offsets), then the data without
gaps (https://github.com/huggingface/safetensors, README). Written for files nobody vouches for: no torch, no pickle;
and for images that stay small: no numpy.
"""

from __future__ import annotations

import json
import math
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.service.errors import AdapterError

MAX_HEADER_BYTES = 100_000_000
CHUNK_BYTES = 256 * 1024
"""Looked at in one go: memory stays bounded, and other threads of the process have their turns."""

BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
HIGH = b"\x7f\xff"
SUSPECT = {"F64": HIGH, "F32": HIGH, "BF16": HIGH, "F16": bytes((*range(0x7C, 0x80), *range(0xFC, 0x100)))}
"""The highest byte of an infinite number, or of one that is none, is one of these; sensible weights never have it."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """`start` and `end` are offsets in the file, in bytes."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


class SafetensorsFile:
    """Raises AdapterError if the file is not whole and well-formed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.tensors = _tensors(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise AdapterError(f"{path} is no whole safetensors file ({error}): save the adapter again") from None

    def is_finite(self, name: str) -> bool:
        """False if any number of the tensor is infinite or not a number."""
        dtype = self.tensors[name].dtype
        return all(_all_finite(dtype, chunk) for chunk in self._chunks(name))

    def read(self, name: str) -> bytes:
        """The numbers of the tensor, little-endian, row by row."""
        return b"".join(self._chunks(name))

    def _chunks(self, name: str) -> Iterator[bytes]:
        tensor = self.tensors[name]
        remaining = tensor.end - tensor.start
        with self.path.open("rb") as file:
            file.seek(tensor.start)
            while remaining > 0:
                chunk = file.read(min(CHUNK_BYTES, remaining))
                if len(chunk) < min(CHUNK_BYTES, remaining):
                    raise AdapterError(f"{self.path} ended within {name}: somebody writes it; it must never change")
                remaining -= len(chunk)
                yield chunk


def _all_finite(dtype: str, numbers: bytes) -> bool:
    size = BYTES[dtype]
    highest = numbers[size - 1 :: size]
    if not any(byte in highest for byte in SUSPECT[dtype]):
        return True
    if dtype == "F64":
        return all(map(math.isfinite, _native("d", numbers)))
    return dtype != "F16" and all(map(math.isfinite, _native("f", numbers if size == 4 else _widened(numbers))))


def _widened(numbers: bytes) -> bytes:
    """bfloat16 is the upper half of a float32."""
    wide = bytearray(2 * len(numbers))
    wide[2::4], wide[3::4] = numbers[0::2], numbers[1::2]
    return bytes(wide)


def _native(code: str, numbers: bytes) -> array[Any]:
    values = array(code, numbers)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _tensors(path: Path) -> dict[str, Tensor]:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
            raise ValueError(f"a header of {length:,} bytes in a file of {size:,}")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    tensors = {name: _tensor(name, fields, 8 + length) for name, fields in header.items()}
    end = 8 + length
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].end)):
        if tensor.start != end:
            raise ValueError(f"the data of {name} does not follow the data before it")
        end = tensor.end
    if end != size:
        raise ValueError(f"{size:,} bytes long, but its header describes {end:,}")
    return tensors


def _tensor(name: str, fields: dict[str, Any], data: int) -> Tensor:
    dtype, shape, (start, end) = fields["dtype"], tuple(fields["shape"]), fields["data_offsets"]
    if dtype not in BYTES:
        raise ValueError(f"{name} is {dtype}; it must be one of {', '.join(BYTES)}")
    if not all(isinstance(n, int) and n >= 0 for n in (*shape, start, end)):
        raise ValueError(f"{name} has the shape {shape} and the offsets {start}, {end}")
    if math.prod(shape) * BYTES[dtype] != end - start:
        raise ValueError(f"{name} of shape {shape} takes {end - start:,} bytes")
    return Tensor(dtype, shape, data + start, data + end)
