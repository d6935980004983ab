"""Runs one job again and again, each time killed (kill -9) at the next of the named steps, and then to its end.

`python -m tests.services.trainer.killed_runs JOB STEP…`: torch is imported once, each run is a fork of that. Prints how
each run ended, a word each: `killed`, or the outcome's status.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path

import services.trainer.run.execution
from ratchet.runs.store import RunFolder
from ratchet.service import failpoint
from services.trainer.settings import TrainerSettings
from services.trainer.train import do_run

assert services.trainer.run.execution  # imported for the time it takes


def main() -> None:
    job = RunFolder(Path(sys.argv[1]))
    for step in (*sys.argv[2:], ""):
        child = os.fork()
        if child == 0:
            run(job, step)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        outcome = job.outcome
        sys.stdout.write("killed\n" if killed else f"{outcome.status if outcome else f'exit {status}'}\n")
        sys.stdout.flush()


def run(job: RunFolder, step: str) -> None:
    """In the child, which does not return."""
    os.environ["RATCHET_FAILPOINT"] = step
    importlib.reload(failpoint)
    do_run(TrainerSettings.read(), job, lambda said: None)
    os._exit(0)


if __name__ == "__main__":
    main()
