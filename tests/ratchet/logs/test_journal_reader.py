"""Reading: what is a bad line, where reading starts and ends, and what a writer at work does to it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.logs.journal import Journal
from ratchet.logs.quarantine import BadLine, Quarantine, read_quarantine
from ratchet.logs.reader import LogReader, decode, follow, read, read_json, tail_position
from ratchet.logs.segments import MAX_LINE_BYTES, sealed_segments
from ratchet.service.errors import JournalError


class Scored(msgspec.Struct):
    score: float


def write(folder: Path, lines: list[bytes], segment_bytes: int = 100) -> None:
    async def append() -> None:
        journal = Journal.open(folder, "log", max_segment_bytes=segment_bytes)
        for line in lines:
            await journal.append([line])
        await journal.close()

    asyncio.run(append())


def numbered(count: int) -> list[bytes]:
    return [b'{"n":%d}' % n for n in range(count)]


BAD_LINES = {
    b"": "an empty line",
    b"[1]": "not a JSON object",
    b"true": "not a JSON object",
    b"\0\0\0": "not a JSON object",
    b'{"a":1': "truncated",
    b'{"a":NaN}': "malformed",
    b'{"a":1}{"b":2}': "malformed",
    b'{"a":"\xff"}': "'utf-8' codec can't decode byte 0xff",
    b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}": "recursion",
}


@pytest.mark.parametrize(("bad", "reason"), BAD_LINES.items(), ids=BAD_LINES.values())
def test_a_bad_line_is_reported_where_it_is_and_passed_over(tmp_path: Path, bad: bytes, reason: str) -> None:
    (tmp_path / "log.jsonl").write_bytes(b'{"a":0}\n' + bad + b'\n{"a":2}\n')
    reported: list[BadLine] = []
    for found in (
        [line.data for line in read(tmp_path, "log", on_bad=reported.append)],
        [msgspec.json.encode(it.value) for it in read_json(tmp_path, "log", dict, on_bad=reported.append)],
    ):
        assert found == [b'{"a":0}', b'{"a":2}']
    assert [(it.file, it.position, it.data) for it in reported] == [("log.jsonl", 8, bad)] * 2
    assert all(reason in it.reason for it in reported)


def test_a_line_of_another_type_is_bad_only_where_the_type_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(b'{"score":0.5,"more":1}\n{"score":"high"}\n{}\n')
    reported: list[BadLine] = []
    records = list(read_json(tmp_path, "log", Scored, on_bad=reported.append))
    assert [(it.position, it.end, it.value) for it in records] == [(0, 23, Scored(0.5))]
    assert [it.reason for it in reported] == [
        "Expected `float`, got `str` - at `$.score`",
        "Object missing required field `score`",
    ]
    assert len(list(read(tmp_path, "log"))) == 3


@given(st.binary(max_size=60))
def test_no_line_whatever_breaks_the_decoder(data: bytes) -> None:
    try:
        value = decode(data, msgspec.json.Decoder())
    except (msgspec.DecodeError, ValueError):
        return
    assert isinstance(value, dict)


def test_a_line_beyond_the_bound_is_passed_over(tmp_path: Path) -> None:
    longest = b'{"x":"' + b"x" * (MAX_LINE_BYTES - 8) + b'"}'
    (tmp_path / "log.jsonl").write_bytes(longest + b"\nx" + longest + b"\n{}\n")
    reported: list[BadLine] = []
    found = list(read(tmp_path, "log", on_bad=reported.append))
    assert [len(line.data) for line in found] == [MAX_LINE_BYTES, 2]
    assert [it.position for it in reported] == [MAX_LINE_BYTES + 1]
    assert "33,554,434 bytes: too long" in reported[0].reason
    assert len(reported[0].data) < 100_000


def test_a_torn_tail_is_neither_a_line_nor_an_error(tmp_path: Path) -> None:
    # given a log whose writer is in the middle of a line
    log = tmp_path / "log.jsonl"
    log.write_bytes(b'{"a":0}\n{"a":')
    reported: list[BadLine] = []
    reader = LogReader(tmp_path, "log", on_bad=reported.append)
    assert [line.data for line in reader.lines()] == [b'{"a":0}']
    assert (reader.position, reported) == (8, [])

    # when the line is whole, then the reader goes on with it
    log.write_bytes(b'{"a":0}\n{"a":1}\n')
    assert [line.data for line in reader.lines()] == [b'{"a":1}']


def test_a_reading_goes_on_into_what_was_sealed_and_begun_meanwhile(tmp_path: Path) -> None:
    write(tmp_path, numbered(10), segment_bytes=1_000)
    reading = read(tmp_path, "log")
    found = [next(reading).data]
    write(tmp_path, [b'{"n":%d}' % n for n in range(10, 60)], segment_bytes=100)
    found += [line.data for line in reading]
    assert found == numbered(60)


def test_a_log_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    assert list(read(tmp_path, "log")) == []
    assert list(read(tmp_path / "nowhere", "log")) == []
    assert tail_position(tmp_path, "log", 5) == 0


def test_reading_starts_at_any_line_of_any_segment(tmp_path: Path) -> None:
    write(tmp_path, numbered(60))
    assert len(sealed_segments(tmp_path, "log")) > 4
    every = list(read(tmp_path, "log"))
    assert [line.data for line in every] == numbered(60)
    for index, line in enumerate(every):
        assert list(read(tmp_path, "log", line.position)) == every[index:]
    assert list(read(tmp_path, "log", every[-1].end)) == []


@pytest.mark.parametrize("position", [1, 103, 99_999])
def test_a_position_where_no_line_starts_is_an_error(tmp_path: Path, position: int) -> None:
    write(tmp_path, numbered(60))
    with pytest.raises(JournalError, match="no line starts at byte"):
        list(read(tmp_path, "log", position))
    with pytest.raises(JournalError, match="no line starts at byte 5"):
        list(read(tmp_path, "nothing", 5))


def test_a_missing_segment_is_named(tmp_path: Path) -> None:
    write(tmp_path, numbered(60))
    first, second, *_ = sealed_segments(tmp_path, "log")
    second.path.unlink()
    with pytest.raises(
        JournalError, match=rf"{second.path.name[:-4]}.* missing: put it back, or read on .* {second.end}"
    ):
        list(read(tmp_path, "log"))
    first.path.unlink()
    with pytest.raises(JournalError, match=rf"log-{0:015}-{second.end:015}\.jsonl.* missing"):
        list(read(tmp_path, "log"))
    assert next(read(tmp_path, "log", second.end)).position == second.end


def test_a_damaged_segment_is_named(tmp_path: Path) -> None:
    write(tmp_path, numbered(60))
    segment = sealed_segments(tmp_path, "log")[1]
    whole = segment.path.read_bytes()
    for damage in (whole[:-10], b"\0" * len(whole), whole[:20] + b"\xff" + whole[21:], b""):
        segment.path.write_bytes(damage)
        with pytest.raises(JournalError, match=rf"{segment.path.name} can't be read on from byte"):
            list(read(tmp_path, "log"))


def test_two_segments_that_overlap_are_an_error(tmp_path: Path) -> None:
    write(tmp_path, numbered(60))
    (tmp_path / f"log-{3:015}-{50:015}.jsonl").write_bytes(b"x" * 47)
    with pytest.raises(JournalError, match="overlap"):
        list(read(tmp_path, "log"))


def test_the_last_lines_are_found_across_segments(tmp_path: Path) -> None:
    write(tmp_path, numbered(60))
    every = list(read(tmp_path, "log"))
    for count in (1, 2, 30, 60):
        assert tail_position(tmp_path, "log", count) == every[-count].position
    assert tail_position(tmp_path, "log", 61) == 0


def test_following_sees_every_line_once_while_segments_are_sealed_and_compressed(tmp_path: Path) -> None:
    # given a writer that seals a segment every few lines
    expected = numbered(1_500)
    writer = threading.Thread(target=write, args=(tmp_path, expected, 400))

    # when a reader follows from the beginning
    writer.start()
    followed = follow(tmp_path, "log", poll_s=0.001, stop=lambda: not writer.is_alive())
    found = [line.data for line in followed]
    writer.join()
    found += [line.data for line in read(tmp_path, "log", sum(len(data) + 1 for data in found))]

    # then nothing is missing and nothing comes twice
    assert found == expected
    assert len(sealed_segments(tmp_path, "log")) > 20


ROTATE = """
import sys
from pathlib import Path
from ratchet.logs.segments import seal
folder, position = Path(sys.argv[1]), 0
for number in range(int(sys.argv[2])):
    line = b'{"n":%d}\\n' % number
    (folder / "next").write_bytes(line)
    (folder / "next").rename(folder / "log.jsonl")
    seal(folder, "log", position, position := position + len(line))
"""


def test_no_rotation_at_the_wrong_moment_shifts_what_is_read(tmp_path: Path) -> None:
    # given a process that seals after every line, as fast as it can
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    writer = subprocess.Popen([sys.executable, "-c", ROTATE, str(tmp_path), "400"], env=environment)

    # when a reader goes on again and again
    reader = LogReader(tmp_path, "log")
    found: list[bytes] = []
    while writer.poll() is None or len(found) < 400:
        found += [line.data for line in reader.lines()]

    # then it saw every line once, in order
    assert found == numbered(400)
    assert writer.returncode == 0


def test_a_segment_that_is_missing_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    write(tmp_path, numbered(60))
    path = sealed_segments(tmp_path, "log")[1].path
    hidden = path.rename(tmp_path / "hidden")
    returning = threading.Timer(0.05, hidden.rename, [path])
    returning.start()
    assert [line.data for line in read(tmp_path, "log")] == numbered(60)
    returning.join()


def test_following_reports_a_bad_line_once(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(b"{}\nbad\n")
    reported: list[BadLine] = []
    rounds = iter([False, False, True])
    assert len(list(follow(tmp_path, "log", poll_s=0, stop=lambda: next(rounds), on_bad=reported.append))) == 1
    assert len(reported) == 1


def test_bad_lines_go_to_quarantine_once_however_often_they_are_read(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(b'{}\nbad\n{"a":"\xff"}\n')
    for _ in range(2):
        quarantine = Quarantine(tmp_path)
        for _ in range(2):
            list(read(tmp_path, "log", on_bad=quarantine))
    assert [(bad.position, bad.data) for bad in read_quarantine(tmp_path)] == [(3, b"bad"), (7, b'{"a":"\xff"}')]


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    line = b'{"score":0.5,"ids":[%s]}' % b",".join(b"%d" % n for n in range(700))
    (tmp_path / "log.jsonl").write_bytes((line + b"\n") * 8_000)  # 21 MB
    size = (tmp_path / "log.jsonl").stat().st_size
    write(tmp_path, [b'{"score":1}'], segment_bytes=1_000)
    assert [segment.size for segment in sealed_segments(tmp_path, "log")] == [size]
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_json(tmp_path, "log", Scored))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 8_001
    assert size > 20_000_000
    assert peak < 6_000_000
