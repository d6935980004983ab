"""Processes that tests started and look for."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil


def marked(mark: str) -> list[str]:
    """Return the ids of processes with this mark in their command line."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in place.read_bytes():
                found.append(place.parent.name)
        except OSError:
            continue
    return found


def is_gone(pid: int) -> bool:
    """Tell whether a process has ended, perhaps as a zombie whose exit code nobody has read."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def sockets_elsewhere(pid: int) -> list[str]:
    """Return a process's sockets in other networks than its own, such as those of sandboxes."""
    place = Path(f"/proc/{pid}")
    own = {
        line.split()[column]
        for name, column in (("tcp", 9), ("tcp6", 9), ("udp", 9), ("udp6", 9), ("unix", 6))
        for line in (place / "net" / name).read_text().splitlines()[1:]
    }
    held = []
    for descriptor in (place / "fd").iterdir():
        with suppress(FileNotFoundError):
            held.append(str(descriptor.readlink()))
    inodes = [one.removeprefix("socket:[").removesuffix("]") for one in held if one.startswith("socket:[")]
    return [inode for inode in inodes if inode not in own]
