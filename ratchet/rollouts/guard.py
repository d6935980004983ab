"""Runs a command and ends it, with all of its process group, the moment whoever started this is gone: also by kill -9.

`python -I -S guard.py FD COMMAND…`, in a session of its own; FD is the reading end of a pipe that the starter holds the
other end of and writes nothing to. Its exit code is the command's; 127 where that can't be started. Standard library
only, so that it starts in some hundredths of a second. What leaves the process group is not followed.
"""

import os
import signal
import sys
import threading

NOT_STARTED = 127


def _end_with(pipe: int) -> None:
    os.read(pipe, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main() -> None:
    pipe, command = int(sys.argv[1]), sys.argv[2:]
    os.set_inheritable(pipe, False)
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
    try:
        child = os.posix_spawnp(command[0], command, os.environ)
    except OSError as error:
        sys.stderr.write(f"{command[0]} can't be started: {error.strerror}\n")
        os._exit(NOT_STARTED)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
