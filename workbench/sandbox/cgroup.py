"""A cgroup for one run: memory and processes of the whole of it are held by the kernel, its CPU is counted, and it is
killed as one.

Version 2 where its controllers can be had in a folder we may write to; version 1, as old machines have it, for memory
and processes, and CPU where its accounting can be had. Without either there is none, and `process_tree` measures what
this would hold, but for the CPU of short processes that nobody waited for.
"""

from __future__ import annotations

import os
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from workbench.sandbox.half_started import pid_namespace, process_id
from workbench.sandbox.limits import Limits
from workbench.sandbox.process_tree import start_time

NEEDED = ("memory", "pids")
COUNTED = "cpuacct"
"""The controller of version 1 that counts CPU time; version 2 counts in every group."""
PREFIX = "ratchet-sandbox-"
EMPTY_WITHIN_S = 5.0
FORGOTTEN_AFTER_S = 86_400.0
MOUNTS, OWN = Path("/proc/self/mountinfo"), Path("/proc/self/cgroup")


class RunGroup(Protocol):
    """The cgroup of one run."""

    def add(self, pid: int) -> None:
        """Move a process into it; those that it starts from then on are in it too. Raises OSError."""

    def cpu_s(self) -> float:
        """CPU time of all that ever ran in it; 0 where that is not counted."""

    def peak_bytes(self) -> int: ...

    def ran_out_of_memory(self) -> bool:
        """Tell whether the kernel ended one of its processes for want of memory."""

    def remove(self) -> None:
        """Kill what is left in it and wait until it is empty. Raises OSError where it does not become empty."""


@dataclass(frozen=True, slots=True)
class Cgroups:
    """The place at which groups can be made: one folder of version 2, or one for each controller of version 1."""

    version: int
    folders: tuple[Path, ...]

    @property
    def says(self) -> str:
        return f"cgroup v{self.version} in {self.folders[0]}"

    def group(self, limits: Limits) -> RunGroup:
        """Raises OSError where it can't be made any more."""
        name = f"{PREFIX}{process_id()}-{uuid.uuid4().hex[:12]}"
        paths = list[Path]()
        try:
            for folder in self.folders:
                (folder / name).mkdir()
                paths.append(folder / name)
        except OSError:
            for path in paths:
                path.rmdir()
            raise
        made = _Version2(paths[0]) if self.version == 2 else _Version1(*paths)
        made.limit(limits)
        return made

    def sweep(self) -> int:
        """Remove the groups that processes left which are gone. Returns how many."""
        removed = 0
        for folder in self.folders:
            for path in folder.glob(f"{PREFIX}*"):
                if not _is_owned(path):
                    with suppress(OSError):
                        _kill_and_remove(path)
                        removed += 1
        return removed


def _is_owned(path: Path) -> bool:
    """Return whether the process that made the group is there, and not another that got its number later.

    Containers may share a folder of groups, and see none of each other's processes. A group of another container is
    left alone, unless it is empty a day after it was made.
    """
    number, *rest = path.name.removeprefix(PREFIX).split("-")
    if not number.isdigit():
        return True
    if len(rest) > 2 and rest[1] != pid_namespace():
        with suppress(OSError):
            return bool(_members(path)) or time.time() - path.stat().st_mtime < FORGOTTEN_AFTER_S
        return True
    with suppress(OSError):
        began = start_time(int(number))
        return len(rest) < 2 or rest[0] == began  # an older release names no start
    return False


def find(named: Path | None = None) -> Cgroups | None:
    """The groups that this process may make below `named`, or below its own cgroup; None where it may not."""
    for found in _candidates(named):
        with suppress(OSError):
            found.group(Limits()).remove()
            return found
    return None


def _candidates(named: Path | None) -> list[Cgroups]:
    if named is not None:
        return [Cgroups(2, (named,))]
    mounts, own = _mounts(), _own()
    found = []
    if "" in mounts and "" in own and (folder := _below(mounts[""], own[""])):
        found.append(Cgroups(2, (folder,)))
    if all(name in mounts and name in own for name in NEEDED):
        folders = [_below(mounts[name], own[name]) for name in NEEDED]
        if all(folders):
            needed = tuple(folder for folder in folders if folder)
            counted = _below(mounts[COUNTED], own[COUNTED]) if COUNTED in mounts and COUNTED in own else None
            found += [Cgroups(1, (*needed, counted))] if counted is not None else []
            found.append(Cgroups(1, needed))
    return found


def _below(mount: Path, path: str) -> Path | None:
    folder = mount / path.lstrip("/")
    return folder if folder.is_dir() else None


def _mounts() -> dict[str, Path]:
    """The folder in which each controller of version 1 is mounted; version 2 has the empty name."""
    found = dict[str, Path]()
    with suppress(OSError):
        for line in MOUNTS.read_text().splitlines():
            before, _, after = line.partition(" - ")
            kind, _, options = after.split(" ", 2)
            place = Path(before.split()[4])
            if kind == "cgroup2":
                found.setdefault("", place)
            elif kind == "cgroup":
                for name in options.split(","):
                    if name in (*NEEDED, COUNTED):
                        found.setdefault(name, place)
    return found


def _own() -> dict[str, str]:
    found = dict[str, str]()
    with suppress(OSError):
        for line in OWN.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            for name in controllers.split(","):
                found[name] = path
    return found


class _Version2:
    def __init__(self, path: Path) -> None:
        self._path = path

    def limit(self, limits: Limits) -> None:
        """Raises OSError where memory and processes can't be limited, after removing what was made."""
        try:
            self._ask_for_controllers()
            (self._path / "memory.max").write_text(str(limits.memory_bytes))
            (self._path / "pids.max").write_text(str(limits.processes + 2))
            with suppress(OSError):
                (self._path / "memory.swap.max").write_text("0")
            with suppress(OSError):
                (self._path / "memory.oom.group").write_text("1")
        except OSError:
            self._path.rmdir()
            raise

    def _ask_for_controllers(self) -> None:
        control = self._path.parent / "cgroup.subtree_control"
        if missing := [name for name in NEEDED if name not in control.read_text().split()]:
            control.write_text(" ".join(f"+{name}" for name in missing))
        if "cpu" not in control.read_text().split():
            with suppress(OSError):
                control.write_text("+cpu")

    def add(self, pid: int) -> None:
        (self._path / "cgroup.procs").write_text(str(pid))

    def cpu_s(self) -> float:
        return _field(self._path / "cpu.stat", "usage_usec") / 1e6

    def peak_bytes(self) -> int:
        return _number(self._path / "memory.peak")

    def ran_out_of_memory(self) -> bool:
        return _field(self._path / "memory.events", "oom_kill") > 0

    def remove(self) -> None:
        with suppress(OSError):
            (self._path / "cgroup.kill").write_text("1")
        _kill_and_remove(self._path)


class _Version1:
    def __init__(self, memory: Path, pids: Path, counted: Path | None = None) -> None:
        self._memory, self._pids, self._counted = memory, pids, counted

    def limit(self, limits: Limits) -> None:
        try:
            (self._memory / "memory.limit_in_bytes").write_text(str(limits.memory_bytes))
            (self._pids / "pids.max").write_text(str(limits.processes + 2))
            with suppress(OSError):
                (self._memory / "memory.memsw.limit_in_bytes").write_text(str(limits.memory_bytes))
        except OSError:
            for path in self._paths:
                path.rmdir()
            raise

    @property
    def _paths(self) -> list[Path]:
        return [path for path in (self._memory, self._pids, self._counted) if path is not None]

    def add(self, pid: int) -> None:
        for path in self._paths:
            (path / "cgroup.procs").write_text(str(pid))

    def cpu_s(self) -> float:
        return _number(self._counted / "cpuacct.usage") / 1e9 if self._counted is not None else 0.0

    def peak_bytes(self) -> int:
        return _number(self._memory / "memory.max_usage_in_bytes")

    def ran_out_of_memory(self) -> bool:
        return _field(self._memory / "memory.oom_control", "oom_kill") > 0

    def remove(self) -> None:
        for path in self._paths:
            _kill_and_remove(path)


def _kill_and_remove(path: Path) -> None:
    """Killed and removed. What was killed leaves its group a moment after it is gone. Raises OSError."""
    end = time.monotonic() + EMPTY_WITHIN_S
    while True:
        for pid in _members(path):
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
        try:
            path.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.002)


def _members(path: Path) -> list[int]:
    try:
        return [int(pid) for pid in (path / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def _field(path: Path, name: str) -> int:
    try:
        lines = (line.split() for line in path.read_text().splitlines())
        return next((int(value) for field, value in lines if field == name), 0)
    except (OSError, ValueError):
        return 0
