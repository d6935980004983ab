"""A process that runs jobs as an ordinary user: pickled jobs in on stdin, pickled results out on stdout.

Started as `python -m tests.workbench.sandbox.as_user UID CGROUPS`, CGROUPS a pickle in hex. All that is imported
is imported before the user changes, who may not see the folders it lies in.
"""

from __future__ import annotations

import json
import os
import pickle
import resource  # os.wait4 imports it when it is called
import sys

from tests.workbench.sandbox import answering
from workbench.sandbox.running import Stop, run
from workbench.sandbox.self_test import self_test
from workbench.sandbox.syscalls import filters


def main() -> None:
    user, cgroups = int(sys.argv[1]), pickle.loads(bytes.fromhex(sys.argv[2]))
    programs = filters()
    assert json and resource and self_test and answering
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    stop = Stop()
    while True:
        try:
            job = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            outcome: object = run(job, programs, cgroups, stop)
        except Exception as error:
            outcome = error
        pickle.dump(outcome, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
