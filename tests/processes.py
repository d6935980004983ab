"""Processes of this machine, as tests look for those that they started."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil


def marked(mark: str) -> list[str]:
    """The ids of those that have it in their command line."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in place.read_bytes():
                found.append(place.parent.name)
        except OSError:
            continue
    return found


def is_gone(pid: int) -> bool:
    """Or has ended, and nobody has asked yet how."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def sockets_elsewhere(pid: int) -> list[str]:
    """Internet sockets that a process holds in another network than its own, such as those of sandboxes."""
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
