"""The last lines of a log, from the end of its active file."""

from __future__ import annotations

from pathlib import Path

from ratchet.logs.reader import active_tail


def test_the_last_whole_lines_come_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(b'{"n":1}\n{"n":2}\n{"n":3}\n{"torn":')

    assert active_tail(tmp_path, "log", 2) == [b'{"n":2}', b'{"n":3}']
    assert active_tail(tmp_path, "log", 9) == [b'{"n":1}', b'{"n":2}', b'{"n":3}']


def test_a_line_that_begins_before_what_is_read_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(b"a" * 100 + b"\n" + b"b" * 5 + b"\n" + b"c" * 5 + b"\n")

    assert active_tail(tmp_path, "log", 9, most_bytes=15) == [b"b" * 5, b"c" * 5]


def test_a_log_that_is_empty_or_not_there_has_no_lines(tmp_path: Path) -> None:
    assert active_tail(tmp_path, "log", 9) == []
    (tmp_path / "log.jsonl").touch()
    assert active_tail(tmp_path, "log", 9) == []
