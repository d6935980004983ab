"""The memory of each process of a fleet, over time."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import psutil

from services.cli.fleet.folder import FleetFolder
from services.cli.fleet.ports import marked_processes

PROGRAM = "SUPERVISOR_PROCESS_NAME"
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Flatness:
    """MiB of one process: the medians of the first and of the last sixth of the time, and the most."""

    name: str
    first: float
    last: float
    most: float

    @property
    def change(self) -> float:
        """The growth from the first to the last, as a share of the first."""
        return self.last / self.first - 1


@dataclass
class Memory:
    """Resident bytes, without pages that are shared: of each process by its pid, with the seconds it was looked at."""

    folder: FleetFolder
    seen: dict[int, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    names: dict[int, str] = field(default_factory=dict)

    def look(self, second: float) -> None:
        for process in marked_processes(self.folder):
            try:
                held = process.memory_info()
                self.names.setdefault(process.pid, _name(process))
            except (psutil.Error, OSError):  # it ended meanwhile
                continue
            self.seen[process.pid].append((second, (held.rss - held.shared) / MIB))

    def flatness(self, since: float, until: float) -> Iterator[Flatness]:
        """Yield the flatness of each process that lived all that time."""
        part = (until - since) / 6
        for pid, looks in self.seen.items():
            first = [held for at, held in looks if since <= at < since + part]
            last = [held for at, held in looks if until - part <= at]
            if first and last:
                most = max(held for at, held in looks if at >= since)
                yield Flatness(self.names[pid], statistics.median(first), statistics.median(last), most)


def _name(process: psutil.Process) -> str:
    """The program, and which of its processes."""
    command = process.cmdline()
    module = next((command[at + 1] for at, part in enumerate(command[:-1]) if part == "-m"), process.name())
    return f"{process.environ().get(PROGRAM, 'supervisor')}: {module}"
