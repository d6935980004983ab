"""Sealing and compressing, stopped by a crash at any point: one whole copy of every segment remains."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ratchet.logs.journal import Journal
from ratchet.logs.reader import read
from ratchet.logs.segments import Segment, compress, is_whole, seal, sealed_segments, tidy
from ratchet.service.errors import JournalError

CONTENT = b"".join(b'{"n":%d}\n' % n for n in range(2_000))


def sealed(folder: Path, content: bytes = CONTENT) -> Segment:
    (folder / "log.jsonl").write_bytes(content)
    return seal(folder, "log", 0, len(content))


def reopened(folder: Path) -> list[Segment]:
    async def open_and_close() -> None:
        await Journal.open(folder, "log").close()

    asyncio.run(open_and_close())
    assert b"".join(line.data + b"\n" for line in read(folder, "log")) == CONTENT
    assert not list(folder.glob("*.tmp"))
    return sealed_segments(folder, "log")


def test_a_sealed_segment_says_what_it_holds_and_compresses_to_the_same(tmp_path: Path) -> None:
    plain = sealed(tmp_path)
    assert plain.path.name == f"log-000000000000000-{len(CONTENT):015d}.jsonl"
    copy = compress(plain)
    assert copy.path.name == plain.path.name + ".zst"
    assert sealed_segments(tmp_path, "log") == [copy]
    assert copy.path.stat().st_size < len(CONTENT) / 4
    assert copy.open().read() == CONTENT
    assert is_whole(copy)


def test_killed_after_the_rename_before_the_new_file(tmp_path: Path) -> None:
    sealed(tmp_path)
    assert [segment.compressed for segment in reopened(tmp_path)] == [True]


def test_killed_while_compressing(tmp_path: Path) -> None:
    plain = sealed(tmp_path)
    (tmp_path / (plain.path.name + ".zst.tmp")).write_bytes(b"half a copy")
    assert [segment.compressed for segment in reopened(tmp_path)] == [True]


def test_killed_before_the_plain_file_was_removed(tmp_path: Path) -> None:
    plain = sealed(tmp_path)
    compress(plain)
    plain.path.write_bytes(CONTENT)
    assert [segment.compressed for segment in reopened(tmp_path)] == [True]


def test_of_two_copies_the_whole_one_is_kept(tmp_path: Path) -> None:
    # given a compressed copy that does not read to its end
    plain = sealed(tmp_path)
    copy = compress(plain)
    plain.path.write_bytes(CONTENT)
    copy.path.write_bytes(copy.path.read_bytes()[:-20])
    assert not is_whole(copy)

    # then it goes, and the plain one is compressed again
    assert [segment.compressed for segment in reopened(tmp_path)] == [True]

    # and the other way round
    plain.path.write_bytes(CONTENT[:-20])
    assert [segment.compressed for segment in reopened(tmp_path)] == [True]


def test_two_broken_copies_are_both_kept(tmp_path: Path) -> None:
    plain = sealed(tmp_path)
    copy = compress(plain)
    plain.path.write_bytes(CONTENT[:-20])
    copy.path.write_bytes(b"broken")
    with pytest.raises(JournalError, match=r"neither .* nor .* is whole"):
        tidy(tmp_path, "log")
    assert plain.path.exists()
    assert copy.path.exists()


def test_a_segment_shorter_than_its_name_is_not_compressed(tmp_path: Path) -> None:
    plain = sealed(tmp_path)
    plain.path.write_bytes(CONTENT[:-20])
    with pytest.raises(JournalError, match="does not hold as many bytes as its name says"):
        compress(plain)
    assert plain.path.read_bytes() == CONTENT[:-20]
    assert sealed_segments(tmp_path, "log") == [plain]


def test_logs_whose_names_begin_alike_do_not_mix(tmp_path: Path) -> None:
    sealed(tmp_path)
    Segment(tmp_path, "log-b", 0, 3).path.write_bytes(b"{}\n")
    Segment(tmp_path, "xlog", 0, 3).path.write_bytes(b"{}\n")
    assert [segment.name for segment in sealed_segments(tmp_path, "log")] == ["log"]
