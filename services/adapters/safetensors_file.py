"""Read a safetensors file with numpy alone: its header, checked against the file, and its tensors.

Format: 8 bytes little-endian header length, a JSON header (name -> dtype, shape, data_offsets), then the data without
gaps (https://github.com/huggingface/safetensors, README). Written for files nobody vouches for: no torch, no pickle.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import AdapterError

MAX_HEADER_BYTES = 100_000_000
CHUNK = 4_000_000
"""Numbers looked at in one go, so that memory stays bounded."""

EXPONENT_BITS = {
    "F64": ("<u8", 0x7FF0_0000_0000_0000),
    "F32": ("<u4", 0x7F80_0000),
    "F16": ("<u2", 0x7C00),
    "BF16": ("<u2", 0x7F80),
}
"""How each number format is read as integers, and its exponent: all ones means infinite or not a number."""


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
        kind, exponent = EXPONENT_BITS[self.tensors[name].dtype]
        return not any(((chunk & exponent) == exponent).any() for chunk in self._chunks(name, kind))

    def array(self, name: str) -> NDArray[np.float64]:
        """The tensor in float64, whatever it is stored as."""
        tensor = self.tensors[name]
        if tensor.dtype == "BF16":
            upper_half = np.concatenate([*self._chunks(name, "<u2"), np.empty(0, "<u2")]).astype("<u4") << 16
            return upper_half.view("<f4").astype(np.float64).reshape(tensor.shape)
        kind = EXPONENT_BITS[tensor.dtype][0].replace("u", "f")
        return np.concatenate([*self._chunks(name, kind), np.empty(0, kind)]).astype(np.float64).reshape(tensor.shape)

    def _chunks(self, name: str, kind: str) -> Iterator[NDArray[Any]]:
        tensor = self.tensors[name]
        remaining = (tensor.end - tensor.start) // np.dtype(kind).itemsize
        with self.path.open("rb") as file:
            file.seek(tensor.start)
            while remaining > 0:
                chunk = np.fromfile(file, kind, min(CHUNK, remaining))
                if not chunk.size:
                    raise AdapterError(f"{self.path} ended within {name}: somebody writes it; it must never change")
                remaining -= chunk.size
                yield chunk


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
    if dtype not in EXPONENT_BITS:
        raise ValueError(f"{name} is {dtype}; it must be one of {', '.join(EXPONENT_BITS)}")
    if not all(isinstance(n, int) and n >= 0 for n in (*shape, start, end)):
        raise ValueError(f"{name} has the shape {shape} and the offsets {start}, {end}")
    if math.prod(shape) * np.dtype(EXPONENT_BITS[dtype][0]).itemsize != end - start:
        raise ValueError(f"{name} of shape {shape} takes {end - start:,} bytes")
    return Tensor(dtype, shape, data + start, data + end)
