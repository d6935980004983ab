"""Remains of a fleet of programs after its end: processes, groups, mounts, files, and letters in its queues.
Sockets and keys live in processes, and the files of sockets are among the files.

This process adopts every orphan, so that all that a fleet started and that still runs descends from it.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import psutil

from ratchet.bus.amqp.short_connection import open_connection
from ratchet.bus.dead_letters.queue import DeadLetterQueue
from workbench.sandbox import cgroup

SET_CHILD_SUBREAPER = 36
"""An option of prctl."""
MOUNTS = Path("/proc/self/mountinfo")
GONE_WITHIN_S = 30.0
LOOK_EVERY_S = 0.1
HELPERS = ("from multiprocessing.forkserver ", "from multiprocessing.resource_tracker ")
"""Processes of Python's own from which this one forks its fleets, as long as it runs."""


def adopt_orphans() -> None:
    """Adopt orphans from now on. Raises OSError."""
    if ctypes.CDLL(None, use_errno=True).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "orphans can't be adopted")


def running() -> dict[int, str]:
    """Return our running descendants by id; adopted ones that ended are reaped."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            says = " ".join(process.cmdline())[:200] or process.name()
            if process.ppid() != os.getpid() or not any(helper in says for helper in HELPERS):
                found[process.pid] = says
    return found


def processes(before: Collection[int] = ()) -> list[str]:
    """List the processes that still run GONE_WITHIN_S after the end, without those that ran before."""
    until = time.monotonic() + GONE_WITHIN_S
    while (left := {pid: says for pid, says in running().items() if pid not in before}) and time.monotonic() < until:
        time.sleep(LOOK_EVERY_S)
    return [f"process {pid}: {says}" for pid, says in left.items()]


def groups(owners: Collection[int]) -> list[str]:
    """List the control groups of runs that these processes started."""
    found = cgroup.find()
    names = [path for folder in found.folders for path in folder.glob(f"{cgroup.PREFIX}*")] if found else []
    return [f"cgroup {path}" for path in names if _owner(path) in owners]


def _owner(path: Path) -> int:
    pid = path.name.removeprefix(cgroup.PREFIX).partition("-")[0]
    return int(pid) if pid.isdigit() else 0


def mounts(folder: Path) -> list[str]:
    """List the mounts at or from below a folder. A sandbox's own are gone with its namespace and its processes."""
    return [f"mount {line}" for line in MOUNTS.read_text().splitlines() if str(folder) in line]


def dead_letters(amqp_url: str, namespace: str) -> list[str]:
    """List the queue that each was in, and the reason."""
    with open_connection(amqp_url) as connection:
        return [f"{letter.queue}: {letter.reason}" for letter, _ in DeadLetterQueue(connection, namespace).letters()]


def files(*folders: Path) -> list[str]:
    """List all that lies below folders that should be empty, sockets included."""
    found = (path for folder in folders for path in folder.rglob("*"))
    return [f"file {path}" for path in found if not path.is_dir() or not any(path.iterdir())]
