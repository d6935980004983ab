"""A disk that is full or broken: nothing acknowledged is lost, and writing goes on when the disk does."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.files.append_file import AppendFile, check_writable, explain
from ratchet.logs.journal import Journal
from ratchet.logs.leadership import Unfenced
from ratchet.logs.reader import read
from ratchet.service.errors import DiskFull, JournalError, StorageUnavailable
from tests.disks import MayNotMount, files_no_larger_than, mounted_disk, remount, run_where_mounting_is_allowed

LINE = b'{"x":"%s"}' % (b"x" * 991)


@pytest.fixture
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB; or, where this user may not mount one, the whole test where it may."""
    try:
        with mounted_disk(tmp_path / "disk", 256 * 1024) as folder:
            yield folder
    except MayNotMount:

        async def elsewhere(**_: object) -> None:
            run_where_mounting_is_allowed(request.node.nodeid)

        request.node.obj = elsewhere
        yield tmp_path


def count(folder: Path) -> int:
    return sum(line.data == LINE for line in read(folder, "log"))


async def fill(journal: Journal) -> int:
    """Appends groups of three until the disk takes no more; how many lines were acknowledged."""
    acknowledged = 0
    with pytest.raises(DiskFull):
        while True:
            await journal.append([LINE] * 3)
            acknowledged += 3
    return acknowledged


class ShakyFence(Unfenced):
    """A fence that can't be asked the second time."""

    asked = 0

    def check(self) -> None:
        self.asked += 1
        if self.asked == 2:
            raise StorageUnavailable("the disk does not say who leads")


async def test_a_line_is_cut_off_where_nobody_can_say_after_its_sync_who_leads(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, "log", fence=ShakyFence())
    with pytest.raises(StorageUnavailable, match="who leads"):
        await journal.append([b'{"x":"not acknowledged"}'])

    await journal.append([LINE])
    await journal.close()

    assert [line.data for line in read(tmp_path, "log")] == [LINE]


async def test_a_full_disk_loses_nothing_and_writing_goes_on_when_there_is_space(small_disk: Path) -> None:
    # given a disk on which something else takes half of the space
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 128 * 1024)
    journal = Journal.open(small_disk, "log")

    # when it is filled
    acknowledged = await fill(journal)
    assert acknowledged > 100
    assert count(small_disk) == acknowledged
    assert (small_disk / "log.jsonl").stat().st_size == acknowledged * (len(LINE) + 1)
    with pytest.raises(DiskFull, match=r"the disk is full \(0\.0 of 0\.2 MiB free\).*free some space"):
        await journal.append([LINE] * 60)

    # then it goes on as soon as there is space again
    ballast.unlink()
    await journal.append([LINE] * 60)
    await journal.close()
    assert count(small_disk) == acknowledged + 60


async def test_rotation_on_a_full_disk(small_disk: Path) -> None:
    journal = Journal.open(small_disk, "log", max_segment_bytes=10_000)
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 200 * 1024)
    acknowledged = 0
    for _ in range(3):  # compression frees space, so it fills up again and again
        acknowledged += await fill(journal)
    ballast.unlink()
    await journal.append([LINE])
    await journal.close()
    assert count(small_disk) == acknowledged + 1


async def test_a_full_disk_at_the_start_leaves_the_torn_line_for_the_next(small_disk: Path) -> None:
    (small_disk / "log.jsonl").write_bytes(b'{}\n{"torn')
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(b"x" * 4096)
    with pytest.raises(DiskFull):
        Journal.open(small_disk, "log")
    ballast.unlink()
    journal = Journal.open(small_disk, "log")
    assert journal.end == 3
    await journal.close()
    assert b'{\\"torn' in (small_disk / "quarantine.jsonl").read_bytes()


async def test_a_short_write_is_taken_back_whole(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, "log")
    with files_no_larger_than(50_500):
        acknowledged = await fill(journal)
        assert acknowledged == 48
        assert (tmp_path / "log.jsonl").stat().st_size == 48_000 + 48 * (len(LINE) + 1 - 1000)
    await journal.append([LINE] * 3)
    await journal.close()
    assert count(tmp_path) == 51


class BrokenDisk(AppendFile):
    """Fails as planned: each entry of `plan` is the errno of one further sync, 0 for none."""

    plan: list[int]

    def sync(self) -> None:
        number = self.plan.pop(0) if self.plan else 0
        super().sync()
        if number:
            raise OSError(number, os.strerror(number))


async def test_after_a_failed_sync_the_file_is_cut_back_reopened_and_written_on(tmp_path: Path) -> None:
    # given a disk whose third sync fails (the first is at open)
    BrokenDisk.plan = [0, 0, errno.EIO]
    journal = Journal.open(tmp_path, "log", file_type=BrokenDisk)
    assert await journal.append([b'{"n":1}']) == 0

    # when a line can't be synced
    with pytest.raises(JournalError, match=r"Input/output error.*dmesg"):
        await journal.append([b'{"n":2}'])

    # then it is not in the log, and the next takes its place
    assert [line.data for line in read(tmp_path, "log")] == [b'{"n":1}']
    assert await journal.append([b'{"n":3}']) == 8
    await journal.close()
    assert [line.data for line in read(tmp_path, "log")] == [b'{"n":1}', b'{"n":3}']


async def test_while_the_disk_stays_broken_nothing_is_acknowledged(tmp_path: Path) -> None:
    BrokenDisk.plan = [0, 0, *[errno.EIO] * 4]
    journal = Journal.open(tmp_path, "log", file_type=BrokenDisk)
    await journal.append([b'{"n":1}'])
    for _ in range(2):  # the sync, and that of the cut
        with pytest.raises(JournalError):
            await journal.append([b'{"n":2}'])
    assert journal.end == 8
    while BrokenDisk.plan:
        with pytest.raises(JournalError):
            await journal.append([b'{"n":2}'])
    assert await journal.append([b'{"n":3}']) == 8
    await journal.close()


class LyingDisk(AppendFile):
    """Its sync fails once and damages what was acknowledged before, as a dying disk may."""

    armed = False

    def sync(self) -> None:
        super().sync()
        if LyingDisk.armed:
            LyingDisk.armed = False
            fd = os.open(self.path, os.O_WRONLY)
            os.pwrite(fd, b"\0\0\0", 2)
            os.close(fd)
            raise OSError(errno.EIO, "Input/output error")


async def test_acknowledged_bytes_that_do_not_read_back_stop_the_writer(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, "log", file_type=LyingDisk)
    await journal.append([b'{"n":1}'])
    LyingDisk.armed = True
    for expected in ("Input/output error", "no longer holds what was acknowledged"):
        with pytest.raises(JournalError, match=expected):
            await journal.append([b'{"n":2}'])
    await journal.close()


async def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file, not a folder")
    with pytest.raises(JournalError, match=r"logs.*log\.jsonl can't be written"):
        Journal.open(tmp_path / "logs", "log")


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, DiskFull),
        (errno.EDQUOT, DiskFull),
        (errno.EFBIG, DiskFull),
        (errno.EIO, StorageUnavailable),
        (errno.EROFS, StorageUnavailable),
        (errno.ESTALE, StorageUnavailable),
        (errno.ENODEV, StorageUnavailable),
        (errno.ETIMEDOUT, StorageUnavailable),
        (errno.EUCLEAN, StorageUnavailable),
        (errno.EMFILE, StorageUnavailable),
        (errno.EACCES, StorageUnavailable),
        (errno.ENOENT, JournalError),
        (errno.ENAMETOOLONG, JournalError),
    ],
)
def test_what_an_error_of_the_disk_means(tmp_path: Path, number: int, kind: type[JournalError]) -> None:
    explained = explain(OSError(number, os.strerror(number)), tmp_path / "log.jsonl")

    assert type(explained) is kind
    assert str(tmp_path / "log.jsonl") in str(explained)


def test_a_folder_that_is_gone_can_be_full_too(tmp_path: Path) -> None:
    assert type(explain(OSError(errno.ENOSPC, "No space"), tmp_path / "gone" / "log.jsonl")) is DiskFull


@pytest.mark.parametrize(("device", "kind"), [("/dev/full", DiskFull), ("/proc/self/mem", StorageUnavailable)])
def test_what_the_kernel_says_of_a_device_that_takes_nothing(device: str, kind: type[JournalError]) -> None:
    file = AppendFile(Path(device), create=False)

    with pytest.raises(OSError, match=r"No space|Input/output error") as refused:
        file.append(b"{}")

    file.close()
    assert type(explain(refused.value, Path(device))) is kind


async def test_a_disk_that_became_read_only_is_named_and_used_again_when_it_is_not(small_disk: Path) -> None:
    # given a log, and then its disk as the kernel leaves it after an error
    journal = Journal.open(small_disk, "log")
    await journal.append([LINE])
    await journal.close()
    remount(small_disk, "ro")

    # then it can't be opened, and says why
    with pytest.raises(StorageUnavailable, match=r"log\.jsonl can't be written: Read-only file system.*mount it for"):
        Journal.open(small_disk, "log")
    with pytest.raises(StorageUnavailable, match="Read-only"):
        check_writable(small_disk)

    # and goes on when the disk does
    remount(small_disk, "rw")
    check_writable(small_disk)
    journal = Journal.open(small_disk, "log")
    await journal.append([LINE])
    await journal.close()
    assert count(small_disk) == 2


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.ESTALE, errno.ENODEV])
async def test_a_disk_that_fails_is_in_trouble_until_it_takes_as_much_again(tmp_path: Path, number: int) -> None:
    BrokenDisk.plan = [0, 0, *[number] * 4]
    journal = Journal.open(tmp_path, "log", file_type=BrokenDisk)
    await journal.append([b'{"n":1}'])
    await journal.check()

    # when an append fails, the check does too, until the disk is well
    with pytest.raises(StorageUnavailable):
        await journal.append([b'{"n":2}'])
    while BrokenDisk.plan:
        with pytest.raises(StorageUnavailable):
            await journal.check()
    await journal.check()

    # and nothing of the trying is left
    assert (tmp_path / "log.jsonl").read_bytes() == b'{"n":1}\n'
    assert await journal.append([b'{"n":3}']) == 8
    await journal.close()


async def test_a_log_whose_folder_is_gone_is_no_fault_of_a_message(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "logs", "log")
    await journal.append([LINE])
    (tmp_path / "logs").rename(tmp_path / "elsewhere")

    with pytest.raises(StorageUnavailable, match=r"log\.jsonl was moved"):
        await journal.append([LINE])

    (tmp_path / "elsewhere").rename(tmp_path / "logs")
    await journal.append([LINE])
    await journal.close()
    assert count(tmp_path / "logs") == 2
