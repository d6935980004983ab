"""Runs that nobody waits for any more: whoever started them was killed while bubblewrap set them up.

Bubblewrap dies with the process that started it. But its inner process waits for a word of the outer one, without end,
if that is killed before it has given it. Both have their owner in their command lines, so the next that opens a sandbox
ends what belongs to no process that is there. Ids of processes are those of a namespace: who looks at a machine sees
the runs of its containers too, and leaves them alone.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from workbench.sandbox.process_tree import start_time

PREFIX = "ratchet-run-of-"
PROGRAM = b"bwrap"
NAMESPACE = Path("/proc/self/ns/pid")


def owner() -> str:
    """Return the word by which a run's processes name this process in their command lines."""
    return PREFIX + process_id()


def process_id() -> str:
    """Return this process's id, told from any other that has its number later, or in another namespace."""
    return f"{os.getpid()}-{_start_time(os.getpid())}-{pid_namespace()}"


def sweep() -> list[int]:
    """End them, as far as they are ours to end. Returns their ids."""
    ended = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (place / "cmdline").read_bytes().split(b"\0")
            if command[0] == PROGRAM and (of := _owner(command)) is not None and not _is_there(of):
                os.kill(int(place.name), signal.SIGKILL)
                ended.append(int(place.name))
    return ended


def _owner(command: list[bytes]) -> str | None:
    return next((part.decode() for part in command if part.startswith(PREFIX.encode()) and part.isascii()), None)


def _is_there(of: str) -> bool:
    """Tell whether the owner still runs; True too where that can't be seen from here."""
    number, began, namespace = [*of.removeprefix(PREFIX).split("-", 2), "", ""][:3]
    return namespace != pid_namespace() or (number.isdigit() and _start_time(int(number)) == began)


def pid_namespace() -> str:
    """Return the name of this process's namespace of process ids; empty where it can't be read."""
    with suppress(OSError):
        return str(NAMESPACE.readlink())
    return ""


def _start_time(pid: int) -> str | None:
    with suppress(OSError):
        return start_time(pid)
    return None
