"""Attempts at training runs in forks of one process, which imports torch once; each may be killed (kill -9) at a step.

`python -m tests.services.trainer.forked_runs` reads an attempt a line and answers with a word: `killed`, `ended` or
`exit-…`. With an `accelerate` configuration the forks have the environment that `accelerate launch` would give them.
Leaves out the launcher, which the run over two machines starts (tests/services/trainer/run/test_disturbed_runs.py).
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ratchet.runs.store import RunFolder
from ratchet.service import failpoint
from services.trainer import train
from tests.private_broker import free_port

STDOUT = "stdout"
"""Name of the file, in the folder of the run, with what its processes printed."""


class ForkedRuns:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def attempt(
        self, job: RunFolder, environment: Mapping[str, str], step: str = "", config: Path | None = None
    ) -> str:
        """Do the run, or take it up, and say how the attempt ended; at `step` it is killed."""
        assert self._process.stdin and self._process.stdout
        variables = {**environment, "RATCHET_FAILPOINT": step}
        self._process.stdin.write(json.dumps([str(job.path), variables, config and str(config)]) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@contextmanager
def forked_runs() -> Iterator[ForkedRuns]:
    command = [sys.executable, "-m", "tests.services.trainer.forked_runs"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield ForkedRuns(process)


def _launch_environment(config: str) -> dict[str, str]:
    """Return the variables that `accelerate launch` would set."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils import prepare_multi_gpu_env

    given = launch_command_parser().parse_args(["--config_file", config, "-m", "services.trainer.train"])
    given, *_ = _validate_launch_command(given)
    processes = {"WORLD_SIZE": str(given.num_processes), "LOCAL_WORLD_SIZE": str(given.num_processes)}
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    return {**prepare_multi_gpu_env(given), **processes, **address}


def _attempt(job: str, environment: dict[str, str], config: str | None) -> str:
    """Start all processes, and end those that are left where one of them failed, as the launcher does."""
    here = (_launch_environment(config) if config else {}) | environment
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(int(here.get("WORLD_SIZE", 0)))]
    left = {_fork(job, here | rank) for rank in ranks or [{}]}
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


def _fork(job: str, environment: Mapping[str, str]) -> int:
    if child := os.fork():
        return child
    os.environ.update(environment)
    os.dup2(os.open(Path(job) / STDOUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
    try:
        importlib.reload(failpoint)
        os._exit(train.main(["--job", job]))
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main() -> None:
    import services.trainer.run.execution  # noqa: F401  (imported for the time it takes)

    for line in sys.stdin:
        sys.stdout.write(f"{_attempt(*json.loads(line))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
