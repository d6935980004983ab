"""Four processes that promote and roll back without end, each killed again and again while all of them write.

`python -m tests.ratchet.adapters.killed_writers FOLDER KILLS` raises as soon as a reader sees anything but one
primary, or the registry go back. It prints the writes that returned, one a line: the revision, the writer and its
process, and which of that one's writes it was.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from itertools import count
from pathlib import Path

from ratchet.adapters.registry import RegistryStore
from schemas.records.decision import DecisionDraft, Promote, RollBack
from schemas.records.registry import EntryState, Registry
from tests.ratchet.adapters.making_decisions import decided, draft, to_canary

WRITERS = 4
LONGEST_LIFE_S = 0.04


def write_until_killed(store: RegistryStore, writer: int, told: int) -> None:
    """Each decision depends on what the registry says; one that returned is told at once, in one write.

    Ends with its parent too: nobody would kill it any more.
    """
    parent = os.getppid()
    for number in count():
        if os.getppid() != parent:
            return

        def turn(registry: Registry) -> DecisionDraft:
            promoted = registry.agent("small").primary == "v1.0.1"
            move = RollBack(version="v1.0.1") if promoted else Promote(version="v1.0.1")
            return draft(move, who="operator:ann", writer=f"{writer}.{os.getpid()}", number=number)  # noqa: B023

        after = store.update(turn)
        os.write(told, f"{after.revision} {writer}.{os.getpid()} {number}\n".encode())


def started(store: RegistryStore, writer: int, told: int) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            write_until_killed(store, writer, told)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    return pid


def look_until(enough: Callable[[], bool], store: RegistryStore, revision: int) -> int:
    """The newest revision a reader saw."""
    while True:
        registry = store.read()
        entries = registry.agent("small").versions.values()
        assert sum(entry.state is EntryState.STABLE for entry in entries) == 1, registry
        assert registry.revision >= revision, f"from {revision} back to {registry.revision}"
        revision = registry.revision
        if enough():
            return revision


def killed(pid: int) -> None:
    assert os.waitpid(pid, os.WNOHANG) == (0, 0), "a writer ended by itself"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def main(folder: Path, kills: int) -> None:
    store, chance, revision = RegistryStore(folder / "adapters"), random.Random(11), 0
    decided(store, *to_canary("v1.0.1"))
    with (folder / "told").open("ab") as told:
        writers = [started(store, writer, told.fileno()) for writer in range(WRITERS)]
        for kill in range(kills):
            end, victim = time.monotonic() + chance.uniform(0.0, LONGEST_LIFE_S), kill % WRITERS
            patient = kill // WRITERS % 2  # every other life of each lasts until it told of a write, on any machine

            def enough() -> bool:
                told_of = not patient or f".{writers[victim]} " in (folder / "told").read_text()  # noqa: B023
                return told_of and time.monotonic() > end  # noqa: B023

            revision = look_until(enough, store, revision)
            killed(writers[victim])
            writers[victim] = started(store, victim, told.fileno())
        for pid in writers:
            killed(pid)
    look_until(lambda: True, store, revision)
    sys.stdout.write((folder / "told").read_text())


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
