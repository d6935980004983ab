"""Decides how many of torch's threads are worth having now, by the model's size and what others leave free.

Threads that wait for one that lost its core cost more than they bring. On systems other than Linux it is one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

WORTH_THREADS = 50_000_000
"""Parameters: below, a step is too short to be shared out."""
LOOK_AGAIN_S = 10.0
NEARLY_FREE = 0.7
"""The share of a core that has to be left of it."""


@dataclass(frozen=True, slots=True)
class CpuUse:
    """Seconds at one moment: of the clock, of all cores of the machine busy, and of this process."""

    clock: float
    machine: float
    own: float

    @classmethod
    def now(cls) -> CpuUse | None:
        """None where it can't be told."""
        try:
            user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
        except (OSError, ValueError):
            return None
        busy = user + nice + system + sum(rest[:3])
        return cls(time.monotonic(), busy / os.sysconf("SC_CLK_TCK"), time.process_time())


def threads_for(parameters: int, cores: float, machine_cores: int, others: float) -> int:
    """`cores` this process may use; `others`: cores of the machine that other processes keep busy."""
    if parameters < WORTH_THREADS:
        return 1
    return max(1, int(min(cores, machine_cores - others) + 1 - NEARLY_FREE))


class CpuThreads:
    """Looks at the machine from time to time; `set_threads` is told when another number is better."""

    def __init__(
        self,
        parameters: int,
        set_threads: Callable[[int], None],
        *,
        use: Callable[[], CpuUse | None] = CpuUse.now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._parameters = parameters
        self._set_threads = set_threads
        self._use = use
        self._clock = clock
        self._before = use()
        self._looked_at = clock()
        self.threads = 1
        set_threads(1)

    def look(self) -> None:
        """Called as often as one likes."""
        if self._clock() < self._looked_at + LOOK_AGAIN_S:
            return
        self._looked_at = self._clock()
        before, self._before = self._before, self._use()
        if before is None or self._before is None:
            return
        threads = self._threads_wanted(before, self._before)
        if threads != self.threads:
            self.threads = threads
            self._set_threads(threads)

    def _threads_wanted(self, before: CpuUse, now: CpuUse) -> int:
        others = (now.machine - before.machine - (now.own - before.own)) / (now.clock - before.clock)
        return threads_for(self._parameters, cores_allowed(), os.cpu_count() or 1, others)


def cores_allowed() -> float:
    """Return the cores allowed by affinity and, in a container, by its share of time."""
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return cores if quota == "max" else min(cores, int(quota) / int(period))
    except (OSError, ValueError):
        return cores
