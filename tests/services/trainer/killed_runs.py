"""Runs jobs again and again, each time killed (kill -9) at the next of the job's named steps, and then to its end.

`python -m tests.services.trainer.killed_runs (JOB STEP…)…`, where a job is an absolute path: torch is imported once,
each run is a fork of that. Prints how each run ended, a word each: `killed`, or the outcome's status.
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
    steps: dict[RunFolder, list[str]] = {}
    for given in sys.argv[1:]:
        if given.startswith("/"):
            steps[job := RunFolder(Path(given))] = []
        else:
            steps[job].append(given)
    for job, of_job in steps.items():
        for step in (*of_job, ""):
            sys.stdout.write(f"{attempt(job, step)}\n")
            sys.stdout.flush()


def attempt(job: RunFolder, step: str) -> str:
    if not (child := os.fork()):
        run(job, step)
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    outcome = job.outcome
    return "killed" if killed else outcome.status if outcome else f"exit {status}"


def run(job: RunFolder, step: str) -> None:
    """Run the job in the child, which does not return."""
    os.environ["RATCHET_FAILPOINT"] = step
    importlib.reload(failpoint)
    do_run(TrainerSettings.read(), job, lambda said: None)
    os._exit(0)


if __name__ == "__main__":
    main()
