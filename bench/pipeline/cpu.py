"""CPU seconds and memory of groups of processes, children included."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import psutil

Groups = Mapping[str, Iterable[int]]
"""Names of groups, and the processes at the root of each."""


def tree(pid: int) -> list[psutil.Process]:
    """The process and all below it; empty if it is gone."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu_seconds(groups: Groups) -> dict[str, float]:
    """User and system time used so far by each group. A child that ended takes its time along."""
    return {name: sum(_seconds(process) for pid in pids for process in tree(pid)) for name, pids in groups.items()}


def _seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def resident_mib(pid: int) -> float:
    """Memory of one process, in MiB."""
    return float(psutil.Process(pid).memory_info().rss) / 2**20
