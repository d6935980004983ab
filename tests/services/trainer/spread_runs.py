"""Runs one job under an `accelerate` configuration, killed (kill -9) at each of the named steps, and then to its end.

`python -m tests.services.trainer.spread_runs JOB CONFIG STEP…`: the processes have the environment that `accelerate
launch` would give them, and are forks of this one: torch is imported once. Prints how each attempt ended, a word each.
Leaves out the launcher, which the run over two machines starts (tests/services/trainer/run/test_disturbed_runs.py).
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Mapping

import services.trainer.run.execution
from ratchet.service import failpoint
from services.trainer import train
from tests.private_broker import free_port

assert services.trainer.run.execution  # imported for the time it takes


def launch_environment(config: str) -> dict[str, str]:
    """Return the variables that `accelerate launch` would set."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils import prepare_multi_gpu_env

    given = launch_command_parser().parse_args(["--config_file", config, "-m", "services.trainer.train"])
    given, *_ = _validate_launch_command(given)
    processes = {"WORLD_SIZE": str(given.num_processes), "LOCAL_WORLD_SIZE": str(given.num_processes)}
    return prepare_multi_gpu_env(given) | processes | {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}


def attempt(job: str, environment: Mapping[str, str], step: str) -> str:
    """Start all processes, and end those that are left where one of them failed, as the launcher does."""
    here = environment | {"MASTER_PORT": str(free_port()), "RATCHET_FAILPOINT": step}
    left = {fork(job, here | {"RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(int(here["WORLD_SIZE"]))}
    first = 0
    while left:
        pid, status = os.waitpid(-1, 0)
        left.discard(pid)
        if status and not first:
            first = status
            for other in left:
                os.kill(other, signal.SIGKILL)
    if os.WIFSIGNALED(first):
        return "killed"
    return f"exit-{os.waitstatus_to_exitcode(first)}" if first else "ended"


def fork(job: str, environment: Mapping[str, str]) -> int:
    if child := os.fork():
        return child
    os.environ.update(environment)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # its progress
    importlib.reload(failpoint)
    try:
        os._exit(train.main(["--job", job]))
    finally:
        os._exit(1)


def main() -> None:
    job, config, *steps = sys.argv[1:]
    environment = launch_environment(config)
    for step in (*steps, ""):
        sys.stdout.write(f"{attempt(job, environment, step)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
