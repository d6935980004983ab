"""Starts runs and is killed while they are set up, until one is left half started; prints its id, and its starter's.

`python -m tests.workbench.sandbox.killed_starter PREFIX`. Nobody else in it is killed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from workbench.sandbox import half_started
from workbench.sandbox.job import Job
from workbench.sandbox.running import Stop, run
from workbench.sandbox.syscalls import filters

TRIES = 300
SETTING_UP_MS = 40
ENDS_WITHIN_S = 2.0


def left_by(pid: int) -> list[int]:
    name = f"{half_started.PREFIX}{pid}-".encode()
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if name in place.read_bytes():
                found.append(int(place.parent.name))
        except OSError:
            continue
    return found


def main() -> int:
    half_started.PREFIX = sys.argv[1]
    programs = filters()
    for number in range(TRIES):
        pid = os.fork()
        if not pid:
            run(Job(("sleep", "1000")), programs, None, Stop())
            os._exit(0)
        time.sleep(number % SETTING_UP_MS / 1000)  # real time: it is at another point each time
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        until = time.monotonic() + ENDS_WITHIN_S
        while (left := left_by(pid)) and time.monotonic() < until:
            time.sleep(0.01)  # real time: it looks again
        if left:
            sys.stdout.write(f"{left[0]} {pid}\n")
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
