"""The header is checked elsewhere (test_adapter_check.py); here: which numbers are sound, in every format."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.adapters.safetensors_file import CHUNK_BYTES, SafetensorsFile
from ratchet.service.errors import AdapterError
from tests.quick import rounds

WIDTHS = {"F64": "<u8", "F32": "<u4", "F16": "<u2", "BF16": "<u2"}


def written(path: Path, dtype: str, content: bytes) -> SafetensorsFile:
    shape = [len(content) // np.dtype(WIDTHS[dtype]).itemsize]
    header = json.dumps({"x": {"dtype": dtype, "shape": shape, "data_offsets": [0, len(content)]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + content)
    return SafetensorsFile(path)


def as_floats(dtype: str, content: bytes) -> np.ndarray:
    if dtype == "BF16":
        return (np.frombuffer(content, "<u2").astype("<u4") << 16).view("<f4")
    return np.frombuffer(content, WIDTHS[dtype].replace("u", "f"))


@settings(max_examples=rounds(40))
@given(
    dtype=st.sampled_from(list(WIDTHS)),
    words=st.lists(
        st.one_of(st.binary(min_size=8, max_size=8), st.sampled_from([b"\x7f" * 8, b"\xff" * 8])), max_size=9
    ),
    low=st.binary(max_size=1),
)
def test_sound_as_numpy_says(
    tmp_path_factory: pytest.TempPathFactory, dtype: str, words: list[bytes], low: bytes
) -> None:
    content = b"".join(words)
    if low:  # fewer of them huge, so that some are sound
        content = bytes(byte & 0x3F for byte in content)

    file = written(tmp_path_factory.mktemp("a") / "x.safetensors", dtype, content)

    with np.errstate(invalid="ignore"):
        assert file.is_sound("x") == bool((np.abs(as_floats(dtype, content).astype("f8")) < 2**17).all())
    assert file.read("x") == content


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("spoiled", [None, 0, -1])
def test_one_bad_number_among_many_is_found(tmp_path: Path, dtype: str, spoiled: int | None) -> None:
    exponent = {"F64": 0x7FF0 << 48, "F32": 0x7F80 << 16, "F16": 0x7C00, "BF16": 0x7F80}[dtype]
    numbers = np.zeros(CHUNK_BYTES, WIDTHS[dtype])
    if spoiled is not None:
        numbers[spoiled] = exponent

    assert written(tmp_path / "x", dtype, numbers.tobytes()).is_sound("x") == (spoiled is None)


def test_a_file_that_shrinks_meanwhile_is_an_error(tmp_path: Path) -> None:
    file = written(tmp_path / "x", "F32", bytes(400))
    (tmp_path / "x").write_bytes((tmp_path / "x").read_bytes()[:-4])

    with pytest.raises(AdapterError, match="ended within"):
        file.read("x")
