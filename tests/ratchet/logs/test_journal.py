"""What is acknowledged is read back once, in order, under any grouping, segment size, reopening and torn tail."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.files.append_file import AppendFile
from ratchet.logs.journal import Journal
from ratchet.logs.quarantine import read_quarantine
from ratchet.logs.reader import Line, LogReader, read
from ratchet.logs.segments import sealed_segments
from ratchet.service.errors import JournalError
from tests.quick import rounds
from tests.waiting import settled

lines = st.text(max_size=30).map(lambda text: b'{"text":"%s"}' % text.encode("unicode_escape").hex().encode())
groups = st.lists(lines, min_size=1, max_size=5)
lifetimes = st.lists(st.lists(groups, max_size=6), min_size=1, max_size=4)
"""What one writer after the other appends."""


class CountedSyncs(AppendFile):
    count = 0

    def sync(self) -> None:
        CountedSyncs.count += 1
        super().sync()


def contents(folder: Path) -> list[bytes]:
    return [line.data for line in read(folder, "log")]


def read_group(at: dict[int, Line], position: int) -> list[bytes]:
    """The three lines from the position on."""
    first = at[position]
    second = at[first.end]
    return [first.data, second.data, at[second.end].data]


async def append_all(folder: Path, lifetime: list[list[bytes]], segment_bytes: int) -> list[int]:
    journal = Journal.open(folder, "log", max_segment_bytes=segment_bytes)
    try:
        return list(await asyncio.gather(*(journal.append(group) for group in lifetime)))
    finally:
        await journal.close()


@given(lifetimes, st.integers(1, 400), st.binary(max_size=40), st.data())
@settings(max_examples=rounds(60))
def test_acknowledged_lines_are_read_back_once_and_in_order(
    lifetimes: list[list[list[bytes]]], segment_bytes: int, debris: bytes, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        acknowledged: list[bytes] = []
        for lifetime in lifetimes:
            positions = asyncio.run(append_all(folder, lifetime, segment_bytes))
            acknowledged += [line for group in lifetime for line in group]
            assert positions == sorted(positions)
            with (folder / "log.jsonl").open("ab") as file:
                file.write(debris.replace(b"\n", b""))  # killed while it wrote a line
        found = list(read(folder, "log"))
        assert [line.data for line in found] == acknowledged
        assert [line.end for line in found[:-1]] == [line.position for line in found[1:]]
        for line in data.draw(st.lists(st.sampled_from(found), max_size=3)) if found else []:
            assert next(read(folder, "log", line.position)) == line


@given(groups, st.data())
@settings(max_examples=rounds(40))
def test_a_log_cut_anywhere_opens_with_its_whole_lines_and_the_rest_in_quarantine(
    group: list[bytes], data: st.DataObject
) -> None:
    whole = b"\n".join(group) + b"\n"
    kept = whole[: data.draw(st.integers(0, len(whole)))]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "log.jsonl").write_bytes(kept)
        asyncio.run(append_all(folder, [[b"{}"]], 10_000))
        assert contents(folder) == [*kept.split(b"\n")[:-1], b"{}"]
        torn = [bad.data for bad in read_quarantine(folder)]
        assert torn == ([kept.split(b"\n")[-1]] if not kept.endswith(b"\n") and kept else [])


async def test_four_concurrent_appenders_get_contiguous_groups(tmp_path: Path) -> None:
    # given four writers that append groups of three, in small segments
    journal = Journal.open(tmp_path, "log", max_segment_bytes=4_000)
    groups = [
        [[b'{"by":%d,"n":%d,"of":%d}' % (by, n, part) for part in range(3)] for n in range(60)] for by in range(4)
    ]

    async def write(mine: list[list[bytes]]) -> list[int]:
        return [await journal.append(group) for group in mine]

    # when they run at once
    positions = await asyncio.gather(*map(write, groups))
    end = journal.end
    await journal.close()

    # then each group stands unbroken where its writer was told
    at = {line.position: line for line in read(tmp_path, "log")}
    assert len(at) == 4 * 60 * 3
    for mine, told in zip(groups, positions, strict=True):
        for group, position in zip(mine, told, strict=True):
            assert read_group(at, position) == group
    assert max(line.end for line in at.values()) == end
    assert all(segment.compressed for segment in sealed_segments(tmp_path, "log"))


async def test_concurrent_appends_share_a_sync(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, "log", file_type=CountedSyncs)
    CountedSyncs.count = 0
    await asyncio.gather(*(journal.append([b"{}"]) for _ in range(500)))
    await journal.close()
    assert len(contents(tmp_path)) == 500
    assert CountedSyncs.count < 10


class HeldSyncs(AppendFile):
    """Its sync returns only when it is let go."""

    reached = threading.Event()
    go = threading.Event()

    def sync(self) -> None:
        self.reached.set()
        assert self.go.wait(10)
        super().sync()


async def test_append_returns_only_after_the_sync(tmp_path: Path) -> None:
    # given a disk that holds its syncs back after the log is open
    HeldSyncs.go.set()
    journal = Journal.open(tmp_path, "log", file_type=HeldSyncs)
    HeldSyncs.go.clear()
    HeldSyncs.reached.clear()

    # when a line is written, then its append and the log's end wait for the sync
    appended = asyncio.create_task(journal.append([b"{}"]))
    assert await asyncio.to_thread(HeldSyncs.reached.wait, 10)
    await settled(0.02)
    assert not appended.done()
    assert journal.end == 0
    HeldSyncs.go.set()
    assert await appended == 0
    assert journal.end == 3
    await journal.close()


async def test_lines_are_applied_in_their_order_as_the_end_passes_them_whoever_was_cancelled(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, "log")
    applied: list[tuple[int, int]] = []
    callers = [
        asyncio.create_task(journal.append([b"{}"], lambda position: applied.append((position, journal.end))))
        for _ in range(3)
    ]
    await asyncio.sleep(0)
    callers[1].cancel()

    await asyncio.wait(callers)
    await journal.close()

    assert applied == [(0, 3), (3, 6), (6, 9)]


async def test_gathering_waits_only_in_company(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, "log", gather_s=60)
    await journal.append([b"{}"])
    await journal.append([b"{}"])
    assert journal.end == 6
    await journal.close()


async def test_segments_keep_to_their_size_unless_one_group_is_larger(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, "log", max_segment_bytes=100)
    for size in (40, 40, 40, 300, 40):
        await journal.append([b'{"x":"%s"}' % (b"x" * (size - 9))])
    await journal.close()
    assert [segment.size for segment in sealed_segments(tmp_path, "log")] == [80, 40, 300]
    assert (tmp_path / "log.jsonl").stat().st_size == 40


async def test_opening_again_goes_on_where_it_ended(tmp_path: Path) -> None:
    first = Journal.open(tmp_path, "log", max_segment_bytes=10)
    for _ in range(3):
        await first.append([b'{"a":1}'])
    await first.close()
    second = Journal.open(tmp_path, "log", max_segment_bytes=10)
    assert second.end == first.end == 24
    assert await second.append([b"{}"]) == 24
    await second.close()


@pytest.mark.parametrize("line", [b"", b'{"a":\n1}', b"[1]", b'{"torn":', b'{"x":"' + b"x" * 32 * 1024 * 1024 + b'"}'])
async def test_a_line_that_no_reader_would_take_is_refused(tmp_path: Path, line: bytes) -> None:
    journal = Journal.open(tmp_path, "log")
    with pytest.raises(JournalError, match="not a line for a log"):
        await journal.append([b"{}", line])
    with pytest.raises(JournalError, match="nothing to append"):
        await journal.append([])
    assert journal.end == 0
    await journal.close()


async def test_a_cancelled_caller_harms_nobody_else(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, "log")
    callers = [asyncio.create_task(journal.append([b'{"n":%d}' % n])) for n in range(20)]
    await asyncio.sleep(0)
    callers[3].cancel()
    outcomes = await asyncio.gather(*callers, return_exceptions=True)
    assert [n for n, outcome in enumerate(outcomes) if isinstance(outcome, BaseException)] == [3]
    await journal.close()
    assert len(contents(tmp_path)) in (19, 20)


async def test_after_close_appending_is_refused_and_closing_again_is_not(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, "log")
    appended = asyncio.create_task(journal.append([b"{}"]))
    await asyncio.sleep(0)
    await journal.close()
    await journal.close()
    assert await appended == 0
    with pytest.raises(JournalError, match="closed"):
        await journal.append([b"{}"])


@pytest.mark.parametrize("meddling", ["moved", "removed", "replaced", "cut", "written"])
async def test_a_log_that_somebody_else_touches_is_not_written_on(tmp_path: Path, meddling: str) -> None:
    # given a log with a line, which another program moves, removes, replaces, cuts or writes to
    journal = Journal.open(tmp_path, "log")
    await journal.append([b"{}"])
    path = tmp_path / "log.jsonl"
    match meddling:
        case "moved":
            path.rename(tmp_path / "elsewhere")
        case "removed":
            path.unlink()
        case "replaced":
            path.rename(tmp_path / "elsewhere")
            path.write_bytes(b"{}\n")
        case "cut":
            path.write_bytes(b"")
        case "written":
            path.write_bytes(b"{}\n{}\n")

    # then nothing is acknowledged, and the message says where the bytes still are
    with pytest.raises(JournalError, match=r"by another program .* /proc/\d+/fd/\d+ back"):
        await journal.append([b"{}"])
    if meddling == "moved":
        (tmp_path / "elsewhere").rename(path)
        assert await journal.append([b"{}"]) == 3
    await journal.close()


async def test_lines_that_a_killed_writer_left_unsynced_are_synced_before_they_count(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(b"{}\n")
    CountedSyncs.count = 0
    journal = Journal.open(tmp_path, "log", file_type=CountedSyncs)
    assert (journal.end, CountedSyncs.count) == (3, 1)
    await journal.close()


async def test_bad_lines_already_in_the_log_do_not_stop_the_writer(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(b"not json\n\n{}\n")
    journal = Journal.open(tmp_path, "log")
    assert await journal.append([b"{}"]) == 13
    await journal.close()
    reader = LogReader(tmp_path, "log", on_bad=lambda bad: None)
    assert [line.position for line in reader.lines()] == [10, 13]
