"""The limits of one run. Each limit ends the run with a reason of its own."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds and bytes; of the whole run, not of each of its processes, unless it says so."""

    wall_s: float = 10.0
    cpu_s: float = 10.0
    memory_bytes: int = 512 * MIB
    """Without a memory cgroup it is measured 20 times a second, and each process alone is held to it by the kernel."""
    processes: int = 64
    """Threads are counted."""
    output_bytes: int = MIB
    """Bytes of stdout and stderr together."""
    file_bytes: int = 64 * MIB
    """Bytes of the largest file."""
    workspace_bytes: int = 64 * MIB
    """Bytes of the workspace; the folder for temporary files and shared memory get as much each."""
    files: int = 20_000
    """Files in each of the three; empty ones cost the kernel memory that their sizes don't show."""
    open_files: int = 256
    """Open files of each process."""
    collected_bytes: int = 16 * MIB
    """Bytes of all files that come out together."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise ValueError(f"the limit {name} is {getattr(self, name)}: it must be greater than 0")
