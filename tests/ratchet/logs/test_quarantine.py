"""Quarantine keeps every bad line whole, and each once."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.logs.quarantine import BadLine, Quarantine, read_quarantine
from tests.quick import rounds

bad_lines = st.builds(BadLine, st.just("log.jsonl"), st.integers(0, 3), st.just("broken"), st.binary(max_size=20))


@given(st.lists(bad_lines, max_size=10))
@settings(max_examples=rounds(25))
def test_every_bad_line_is_kept_once_byte_for_byte(lines: list[BadLine]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for _ in range(2):
            quarantine = Quarantine(folder)
            for bad in lines:
                quarantine(bad)
        assert list(read_quarantine(folder)) == list(dict.fromkeys(lines))


def test_a_torn_entry_does_not_swallow_the_next(tmp_path: Path) -> None:
    (tmp_path / "quarantine.jsonl").write_bytes(b'{"file":"log.jsonl","posi')
    bad = BadLine("log.jsonl", 7, "broken", b"\xff\n\0")
    Quarantine(tmp_path)(bad)
    assert list(read_quarantine(tmp_path)) == [bad]


def test_a_full_quarantine_takes_no_more_and_the_reading_goes_on(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path, max_bytes=200)
    for position in range(10):
        quarantine(BadLine("log.jsonl", position, "broken", b"x"))

    assert 0 < len(list(read_quarantine(tmp_path))) < 10
    assert (tmp_path / "quarantine.jsonl").stat().st_size <= 200
