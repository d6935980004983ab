"""Disks that take no more: what the kernel really says, without a broken machine."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """The kernel then refuses the bytes beyond with a short write and EFBIG, as a full disk does with ENOSPC."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def remount(folder: Path, how: str) -> None:
    """A mounted file system, `ro` or `rw` from now on."""
    subprocess.run(["mount", "-o", f"remount,{how}", folder], check=True)
