"""A library for the services of a fleet under test: it makes their disk fail and their clock jump on command.

It acts at the system call, not at a seam in our own code, so SQLite, zstd and Python's own files fail too.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).with_name("preload.c")
LAYOUT = struct.Struct("qii4080s")
NO_COMPILER = "faults at the system call need a C compiler: apt-get install -y gcc libc6-dev"


class Preload:
    """One for all services of a fleet. Raises RuntimeError where there is no compiler."""

    def __init__(self, folder: Path) -> None:
        self._library, self._orders = folder / "preload.so", folder / "preload.orders"
        if (compiler := shutil.which("cc") or shutil.which("gcc")) is None:
            raise RuntimeError(NO_COMPILER)
        subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", self._library, SOURCE, "-ldl"], check=True)
        self._orders.write_bytes(bytes(LAYOUT.size))
        with self._orders.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), LAYOUT.size)
        self._clock, self._error = 0, (0, False, "")

    @property
    def environment(self) -> Mapping[str, str]:
        return {"LD_PRELOAD": str(self._library), "FAULTS_ORDERS": str(self._orders)}

    def fail(self, error: int, folder: Path, *, writes_only: bool = False) -> None:
        """Let every call on files below the folder fail from now on."""
        self._error = (error, writes_only, str(folder))
        self._order()

    def fail_no_more(self) -> None:
        self._error = (0, False, "")
        self._order()

    def set_clock(self, ahead_s: int) -> None:
        """Set the services' wall clock ahead of ours."""
        self._clock = ahead_s
        self._order()

    def _order(self) -> None:
        error, writes_only, folder = self._error
        self._map[:] = LAYOUT.pack(self._clock, error, writes_only, folder.encode())
