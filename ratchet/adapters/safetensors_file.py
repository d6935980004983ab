"""Read a safetensors file: its header, checked against the file, and the bytes of its tensors.

Format: 8 bytes little-endian header length, a JSON header (name -> dtype, shape, data_offsets), then the data without
gaps (https://github.com/huggingface/safetensors, README). Written for files nobody vouches for: no torch, no pickle,
every size bounded; and for images that stay small: no numpy.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.adapters.folder import open_file, parsed_json
from ratchet.adapters.limits import LARGEST_HEADER, LONGEST_NAME, MOST_DIMENSIONS, MOST_NUMBERS, MOST_TENSORS
from ratchet.service.errors import AdapterError

CHUNK_BYTES = 256 * 1024
"""Read in one go: memory stays bounded, and other threads of the process have their turns."""

BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_TOO_LARGE_FROM = {"F64": 0x41, "F32": 0x48, "BF16": 0x48, "F16": 0x7C}
"""The highest byte, without its sign, of numbers of that size and more, of infinite ones, and of NaN."""
_SMALL = {dtype: bytes(byte for byte in range(256) if byte & 0x7F < limit) for dtype, limit in _TOO_LARGE_FROM.items()}
"""The highest bytes of all others."""


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

    def is_sound(self, name: str) -> bool:
        """False if any number of the tensor is infinite, not a number, or LARGEST_NUMBER or more, whatever its sign."""
        dtype = self.tensors[name].dtype
        size = BYTES[dtype]
        return not any(chunk[size - 1 :: size].translate(None, _SMALL[dtype]) for chunk in self._chunks(name))

    def read(self, name: str) -> bytes:
        """The numbers of the tensor, little-endian, row by row."""
        return b"".join(self._chunks(name))

    def _chunks(self, name: str) -> Iterator[bytes]:
        tensor = self.tensors[name]
        remaining = tensor.end - tensor.start
        with open_file(self.path.parent, self.path.name) as file:
            file.seek(tensor.start)
            while remaining > 0:
                chunk = file.read(min(CHUNK_BYTES, remaining))
                if len(chunk) < min(CHUNK_BYTES, remaining):
                    raise AdapterError(f"{self.path} ended within {name}: somebody writes it; it must never change")
                remaining -= len(chunk)
                yield chunk


def _tensors(path: Path) -> dict[str, Tensor]:
    with open_file(path.parent, path.name) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(LARGEST_HEADER, size - 8):
            raise ValueError(
                f"a header of {length:,} bytes in a file of {size:,}; a header may have {LARGEST_HEADER:,}"
            )
        header = parsed_json(file.read(length))
    header.pop("__metadata__", None)
    if len(header) > MOST_TENSORS:
        raise ValueError(f"it names {len(header):,} tensors; it may have {MOST_TENSORS:,}")
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
    if len(name) > LONGEST_NAME:
        raise ValueError(f"a tensor's name has {len(name):,} characters; it may have {LONGEST_NAME}")
    dtype, shape, (start, end) = fields["dtype"], tuple(fields["shape"]), fields["data_offsets"]
    if dtype not in BYTES:
        raise ValueError(f"{name} is {dtype}; it must be one of {', '.join(BYTES)}")
    if len(shape) > MOST_DIMENSIONS or not all(type(n) is int and n >= 0 for n in (*shape, start, end)):
        raise ValueError(f"{name} has the shape {shape[:MOST_DIMENSIONS]} and the offsets {start}, {end}")
    if max(shape, default=0) > MOST_NUMBERS or math.prod(shape) > MOST_NUMBERS:
        raise ValueError(f"{name} of shape {shape} is larger than {MOST_NUMBERS:,} numbers")
    if math.prod(shape) * BYTES[dtype] != end - start:
        raise ValueError(f"{name} of shape {shape} takes {end - start:,} bytes")
    return Tensor(dtype, shape, data + start, data + end)
