"""Who leads a logs folder, and that nobody else writes into it, wherever a process is stopped."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from ratchet.files.append_file import AppendFile
from ratchet.files.folder_lock import FolderLock
from ratchet.logs.journal import Journal
from ratchet.logs.leadership import CHANGES, Leadership
from ratchet.logs.names import ASSIGNMENTS, LEADERS_LOGS
from ratchet.logs.reader import read, read_json, tail_position
from ratchet.logs.segments import compress_sealed, seal, sealed_segments
from ratchet.service.errors import LeadershipLost, StorageUnavailable

LEASE_S = 10.0


class Seconds:
    """Goes on only when it is told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


def candidate(folder: Path, seconds: Seconds, boot: str = "this") -> Leadership:
    return Leadership(folder, lease_s=LEASE_S, seconds=seconds, boot=boot)


def leader(folder: Path, seconds: Seconds, boot: str = "this") -> Leadership:
    leading = candidate(folder, seconds, boot)
    assert leading.try_lead()
    return leading


def successor(folder: Path, seconds: Seconds) -> Leadership:
    """Of a leader that gives no sign of life."""
    waiting = candidate(folder, seconds)
    for _ in range(int(LEASE_S)):
        assert not waiting.try_lead()
        seconds.now += 1
    assert waiting.try_lead()
    return waiting


def journal_of(leading: Leadership, file_type: type[AppendFile] = AppendFile, segment_bytes: int = 1 << 20) -> Journal:
    return Journal.open(
        leading.folder, ASSIGNMENTS, fence=leading, file_type=file_type, max_segment_bytes=segment_bytes
    )


async def append(journal: Journal, text: str) -> None:
    await journal.append([journal.stamp(b'{"text":"%s"}' % text.encode())])


def logged(folder: Path) -> list[tuple[int, str]]:
    return [(one.value["epoch"], one.value["text"]) for one in read_json(folder, ASSIGNMENTS, dict)]


# --- who leads ------------------------------------------------------------------------------------------------------


def test_a_standby_waits_while_the_leader_gives_signs_of_life(tmp_path: Path, seconds: Seconds) -> None:
    first, waiting = leader(tmp_path, seconds), candidate(tmp_path, seconds)

    for _ in range(100):
        assert not waiting.try_lead()
        seconds.now += 1
        first.renew()

    assert "epoch 1" in waiting.holder()


def test_a_leader_that_hangs_is_replaced_after_its_lease_and_finds_out(tmp_path: Path, seconds: Seconds) -> None:
    said: list[str] = []
    first = Leadership(tmp_path, lease_s=LEASE_S, seconds=seconds, on_lost=said.append)
    assert first.try_lead()
    first.check()

    second = successor(tmp_path, seconds)

    assert (second.epoch, second.must_seal, second.took_from_living) == (2, True, True)
    for what_it_does in (first.check, first.renew):
        with pytest.raises(LeadershipLost, match="epoch 2"):
            what_it_does()
    assert "epoch 1" in said[0]
    second.check()


def test_the_one_that_hung_may_end_and_stand_by_without_becoming_the_leader(tmp_path: Path, seconds: Seconds) -> None:
    first = leader(tmp_path, seconds)
    second = successor(tmp_path, seconds)

    first.release()
    third = candidate(tmp_path, seconds)

    for _ in range(100):
        assert not third.try_lead()
        seconds.now += 1
        second.renew()


def test_a_thread_that_works_on_after_leadership_was_given_up_is_stopped_and_no_alarm_raised(
    tmp_path: Path, seconds: Seconds
) -> None:
    alarms: list[str] = []
    first = Leadership(tmp_path, lease_s=LEASE_S, seconds=seconds, on_lost=alarms.append)
    assert first.try_lead()
    first.release()

    with pytest.raises(LeadershipLost, match="given up in order"), first.changing():
        pytest.fail("it changed what is another's now")

    assert alarms == []


def test_time_in_which_the_standby_itself_stood_still_is_not_held_against_the_leader(
    tmp_path: Path, seconds: Seconds
) -> None:
    first, waiting = leader(tmp_path, seconds), candidate(tmp_path, seconds)
    assert not waiting.try_lead()

    seconds.now += 3600

    assert not waiting.try_lead()
    first.renew()
    seconds.now += 3600
    assert not waiting.try_lead()


@pytest.mark.parametrize(
    ("ends_in_order", "boot_of_the_next", "seals"),
    [(True, "another", False), (False, "this", False), (False, "another", True)],
    ids=["released", "dead on this machine", "gone from another machine"],
)
def test_who_comes_after_one_that_is_gone_leads_at_once(
    tmp_path: Path, seconds: Seconds, ends_in_order: bool, boot_of_the_next: str, seals: bool
) -> None:
    first = leader(tmp_path, seconds)
    if ends_in_order:
        first.release()
    else:
        assert first._fd is not None
        os.close(first._fd)  # as the kernel does for a process that is killed

    second = candidate(tmp_path, seconds, boot_of_the_next)
    assert second.try_lead()

    assert (second.epoch, second.must_seal, second.took_from_living) == (2, seals, False)


def test_a_leader_of_an_older_version_has_no_lease_and_is_waited_for(tmp_path: Path, seconds: Seconds) -> None:
    older, waiting = FolderLock(tmp_path), candidate(tmp_path, seconds)
    assert older.try_acquire()
    for _ in range(100):
        assert not waiting.try_lead()
        seconds.now += 1

    older.release()

    assert waiting.try_lead()
    assert (waiting.epoch, waiting.must_seal) == (1, False)


async def test_without_its_file_a_leader_leaves_and_the_epoch_goes_on_from_the_lines(
    tmp_path: Path, seconds: Seconds
) -> None:
    first = leader(tmp_path, seconds)
    first.release()
    second = leader(tmp_path, seconds)
    journal = journal_of(second)
    await append(journal, "a")
    second.path.unlink()

    with pytest.raises(LeadershipLost, match=r"\.lock was removed"):
        await append(journal, "b")
    third = leader(tmp_path, seconds)

    assert (third.epoch, third.must_seal) == (3, True)
    assert logged(tmp_path) == [(2, "a")]
    await journal.close()


@pytest.mark.parametrize("log", LEADERS_LOGS)
async def test_whichever_log_the_newest_leader_wrote_its_epoch_is_not_given_again(
    tmp_path: Path, seconds: Seconds, log: str
) -> None:
    leader(tmp_path, seconds).release()
    second = leader(tmp_path, seconds)
    journal = Journal.open(tmp_path, log, fence=second)
    await journal.append([journal.stamp(b'{"task_id":"t"}')])
    await journal.close()
    second.path.unlink()

    assert leader(tmp_path, seconds).epoch == 3


def test_one_stopped_within_a_change_of_files_is_not_followed_before_it_is_out_of_it(
    tmp_path: Path, seconds: Seconds
) -> None:
    first, waiting = leader(tmp_path, seconds), candidate(tmp_path, seconds)
    with first.changing():
        for _ in range(int(LEASE_S)):
            assert not waiting.try_lead()
            seconds.now += 1
        with pytest.raises(StorageUnavailable, match=CHANGES):
            waiting.try_lead()
        first.check()

    assert waiting.try_lead()


# --- two that write -------------------------------------------------------------------------------------------------


class StoppedBeforeTheWrite(AppendFile):
    """Between the check and the write, as by a SIGSTOP, at its second append."""

    stopped, go_on = threading.Event(), threading.Event()
    appends = 0

    def append(self, data: bytes) -> None:
        StoppedBeforeTheWrite.appends += 1
        if self.appends == 2:
            self.stopped.set()
            self.go_on.wait(60)
        super().append(data)


async def test_what_one_stopped_between_its_check_and_its_write_appends_is_no_part_of_the_log(
    tmp_path: Path, seconds: Seconds
) -> None:
    """This holds whether its file was compressed meanwhile or not. What lies before the seal is part of the log."""
    first = leader(tmp_path, seconds)
    old = journal_of(first, StoppedBeforeTheWrite)
    await append(old, "a")
    stopped = asyncio.create_task(append(old, "b"))
    await asyncio.to_thread(StoppedBeforeTheWrite.stopped.wait, 60)

    second = successor(tmp_path, seconds)
    new = journal_of(second)
    await append(new, "c")
    following = read(tmp_path, ASSIGNMENTS)
    assert next(following).position == 0
    StoppedBeforeTheWrite.go_on.set()
    with pytest.raises(LeadershipLost):
        await stopped
    await append(new, "d")

    assert logged(tmp_path) == [(1, "a"), (2, "c"), (2, "d")]
    assert len(list(following)) == 2
    await new.close()
    assert all(segment.compressed for segment in sealed_segments(tmp_path, ASSIGNMENTS))
    assert logged(tmp_path) == [(1, "a"), (2, "c"), (2, "d")]
    await old.close()


async def test_lines_behind_the_seal_are_not_read_and_not_compressed(tmp_path: Path, seconds: Seconds) -> None:
    journal = journal_of(leader(tmp_path, seconds))
    await append(journal, "a")
    await append(journal, "b")
    await journal.close()
    segment = seal(tmp_path, ASSIGNMENTS, 0, journal.end)
    late = AppendFile(segment.path)
    late.append(b'{"text":"late","epoch":1}\n')
    late.close()

    assert logged(tmp_path) == [(1, "a"), (1, "b")]
    assert tail_position(tmp_path, ASSIGNMENTS, 1) == journal.end // 2

    compress_sealed(tmp_path, ASSIGNMENTS)

    assert all(segment.compressed for segment in sealed_segments(tmp_path, ASSIGNMENTS))
    assert logged(tmp_path) == [(1, "a"), (1, "b")]


@pytest.mark.parametrize("lines_before", [0, 3])
async def test_of_two_that_lead_at_once_the_older_writes_nothing_after_the_newer_ones_first(
    tmp_path: Path, seconds: Seconds, lines_before: int
) -> None:
    """The older works on all the time: only its renewals stand still."""
    first = leader(tmp_path, seconds)
    old = journal_of(first, segment_bytes=200)
    for number in range(lines_before):
        await append(old, f"old {number}")
    told: list[str] = []

    async def work_on() -> None:
        for number in range(lines_before, 10_000):
            await append(old, f"old {number}")
            told.append(f"old {number}")

    working = asyncio.create_task(work_on())
    await asyncio.sleep(0)
    second = await asyncio.to_thread(successor, tmp_path, seconds)
    new = await asyncio.to_thread(journal_of, second)
    for number in range(20):
        await append(new, f"new {number}")
    with pytest.raises(LeadershipLost):
        await working
    with pytest.raises(LeadershipLost):
        await append(old, "late")
    with suppress(LeadershipLost):  # raised unless there is nothing to seal
        await old.seal()
    await old.close()
    await new.close()

    epochs = [epoch for epoch, _ in logged(tmp_path)]
    texts = [text for _, text in logged(tmp_path)]
    assert epochs == sorted(epochs)
    assert texts[-20:] == [f"new {number}" for number in range(20)]
    assert set(told) <= set(texts)
    assert len(texts) == len(set(texts))
