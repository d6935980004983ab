"""Memory and CPU time of the processes of a run, read off /proc while they run."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")
MEMORY = (b"VmRSS:", b"VmPTE:")
"""Fields of /proc/PID/status, in KiB."""
SOCKET_BYTES = 256 * 1024
"""That a socket inside holds of what nobody has read, but for TCP: syscalls.py keeps its buffers as they are."""
CPU_FIELDS = slice(11, 15)
"""utime, stime, cutime and cstime."""
STARTED_FIELD = 19


class CpuTime:
    """CPU-seconds of a tree of processes that is looked at now and then; never more than it took.

    A process that ends takes what it used along, unless somebody waits for it: then its parent has it. So a sum that is
    less than before has lost what had been counted, and all it gains after that comes on top. Between its own end and
    its parent's turn a process may be missed once, which loses nothing: the higher of two neighbouring sums counts.
    """

    def __init__(self) -> None:
        self._before = self._level = self.seconds = 0.0

    def add_reading(self, sum_s: float) -> None:
        level = max(self._before, sum_s)
        self.seconds += max(0.0, level - self._level)
        self._before, self._level = sum_s, level


class Usage(NamedTuple):
    """`cpu_s` includes processes that ended and were waited for. `bytes` is resident memory and what the kernel
    needs to map it, shared pages counted in each process that has them."""

    cpu_s: float
    bytes: int


def usage(root: int) -> Usage:
    """Usage of a process and all below it, without the first one's own set-up; what ends meanwhile counts as nothing.

    Raises ValueError where what the kernel says of a process can't be read.
    """
    cpu = memory = 0
    for pid in descendants(root):
        with suppress(FileNotFoundError, ProcessLookupError):
            cpu += sum(map(int, _fields(pid)[CPU_FIELDS]))
            status = Path(f"/proc/{pid}/status").read_bytes().splitlines()
            memory += sum(int(line.split()[1]) for line in status if line.startswith(MEMORY))
    return Usage(cpu / TICKS, memory * 1024)


def held_by_sockets(pid: int) -> int:
    """Bytes at most, in the network of a process: they are the kernel's, and in no process's memory."""
    place, held = Path(f"/proc/{pid}/net"), 0
    with suppress(OSError, ValueError, IndexError):
        held += SOCKET_BYTES * int((place / "sockstat").read_text().split()[2])
    for name in ("tcp", "tcp6"):
        with suppress(OSError, ValueError):
            for line in (place / name).read_text().splitlines()[1:]:
                sent, received = line.split()[4].split(":")
                held += int(sent, 16) + int(received, 16)
    return held


def start_time(pid: int) -> str:
    """When it began, in ticks since the machine did. Raises OSError where there is no such process."""
    return _fields(pid)[STARTED_FIELD]


def _fields(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the name in parentheses, which the process chooses: it may be any bytes."""
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()


def descendants(root: int) -> list[int]:
    """The process itself first. A process that was orphaned is a child of its namespace's first one, so none is missed
    for long."""
    found, waiting = list[int](), [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        with suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                with suppress(OSError):
                    waiting += map(int, (task / "children").read_text().split())
    return found
