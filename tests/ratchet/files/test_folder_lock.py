"""The leader lock: one holder at a time, and none after a kill -9."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ratchet.files.folder_lock import FolderLock
from tests.disks import files_no_larger_than

ROOT = Path(__file__).parents[3]
HOLD = """
import signal, sys
from pathlib import Path
from ratchet.files.folder_lock import FolderLock
print(FolderLock(Path(sys.argv[1])).try_acquire(), flush=True)
signal.pause()
"""


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    first, second = FolderLock(tmp_path / "logs"), FolderLock(tmp_path / "logs")
    assert first.try_acquire()
    assert first.try_acquire()
    assert not second.try_acquire()
    first.release()
    first.release()
    assert second.try_acquire()
    second.release()


def test_a_holder_killed_with_kill_9_releases_it(tmp_path: Path) -> None:
    # given a process that holds the lock
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    lock = FolderLock(tmp_path)
    assert not lock.try_acquire()
    assert lock.holder().startswith(f"pid {holder.pid} on ")

    # when it is killed
    holder.kill()
    holder.communicate()

    # then the next one gets it
    assert lock.try_acquire()
    assert lock.holder().startswith(f"pid {os.getpid()} on ")
    lock.release()


def test_a_lock_nobody_took_yet_has_no_holder(tmp_path: Path) -> None:
    assert FolderLock(tmp_path).holder() == "nobody"


def test_on_a_full_disk_it_is_taken_without_a_name_in_it_and_given_up(tmp_path: Path) -> None:
    first, second = FolderLock(tmp_path), FolderLock(tmp_path)
    with files_no_larger_than(0):
        assert first.try_acquire()
        first.release()
        assert second.try_acquire()
