"""What the processes of a run use, read off /proc while they run."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
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

    def seen(self, sum_s: float) -> None:
        level = max(self._before, sum_s)
        self.seconds += max(0.0, level - self._level)
        self._before, self._level = sum_s, level


class Usage(NamedTuple):
    """`cpu_s` includes processes that ended and were waited for. `bytes` is resident memory, shared pages counted in
    each process that has them."""

    cpu_s: float
    bytes: int


def usage(root: int) -> Usage:
    """Of a process and all below it; what ends meanwhile counts as nothing. Not of the first process's own set-up."""
    cpu = memory = 0
    for pid in descendants(root):
        with suppress(OSError, ValueError, IndexError):
            cpu += sum(map(int, _fields(pid)[CPU_FIELDS]))
            memory += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Usage(cpu / TICKS, memory * PAGE)


def started(pid: int) -> str:
    """When it began, in ticks since the machine did. Raises OSError where there is no such process."""
    return _fields(pid)[STARTED_FIELD]


def _fields(pid: int) -> list[str]:
    """Of /proc/PID/stat, counted after the name in parentheses."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


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
