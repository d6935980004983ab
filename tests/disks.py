"""Full, read-only and failing disks, with the errors of the real kernel."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """Limit the size of files: the kernel refuses more by a short write and EFBIG, as a full disk by ENOSPC."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def remount(folder: Path, how: str) -> None:
    """Remount a file system that was mounted here as root, as `ro` or `rw`."""
    subprocess.run(["mount", "-o", f"remount,bind,{how}", folder], check=True, capture_output=True)


class MayNotMount(Exception):
    """No way to mount worked; the message has the reason of each."""


@contextmanager
def mounted_disk(folder: Path, size: int) -> Iterator[Path]:
    """Mount a tmpfs of so many bytes, this user's own. Raises MayNotMount where neither root nor sudo may mount one."""
    folder.mkdir(parents=True, exist_ok=True)
    may = () if os.geteuid() == 0 else ("sudo", "-n")
    options = f"size={size},uid={os.geteuid()}"
    if complaint := _complaint(*may, "mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)):
        raise MayNotMount(complaint)
    try:
        yield folder
    finally:
        _complaint(*may, "umount", "-l", str(folder))


@contextmanager
def unreadable(path: Path) -> Iterator[None]:
    """Let reads of the file end with EIO, as on a failing disk. Raises MayNotMount.

    This process's memory is mounted in its place: nothing is mapped at address 0.
    """
    may = () if os.geteuid() == 0 else ("sudo", "-n")
    if complaint := _complaint(*may, "mount", "--bind", f"/proc/{os.getpid()}/mem", str(path)):
        raise MayNotMount(complaint)
    try:
        yield
    finally:
        _complaint(*may, "umount", "-l", str(path))


def run_where_mounting_is_allowed(test: str) -> None:
    """Run a test, by its node id, as root of a user and mount namespace, which Debian and Ubuntu let any user make.

    Skips where that is forbidden too, as in a container of Docker's; fails as the test does.
    """
    if forbidden := _complaint(*NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"):
        pytest.skip(f"needs a disk of its own, and neither root, sudo nor `unshare -rm` may mount one: {forbidden}")
    command = [*NAMESPACE, sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def _complaint(*command: str) -> str:
    """Run a command; return its error, or nothing if it succeeded."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return (ran.stderr.strip() or f"exit code {ran.returncode}") if ran.returncode else ""
