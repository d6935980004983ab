"""`python -m services.trainer.train`: one training run in this process, its progress on stdout as JSON lines.

Three ways: `--agent small …` asks for a run, does it and registers the adapter; `--job FOLDER` does a run that was
recorded (for `accelerate launch`: `accelerate launch -m services.trainer.train --job FOLDER`); `--serve` reads one such
folder a line from stdin, so that torch and TRL are imported once. In the last, the process ends with its stdin.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from ratchet.adapters.publish import registration
from ratchet.adapters.registry import RegistryStore
from ratchet.service import failpoint
from ratchet.service.errors import RatchetError, TrainingError
from ratchet.training_runs.progress import ProgressFile
from ratchet.training_runs.store import Job, Jobs
from schemas.messages.adapter_trained import AdapterTrained
from schemas.messages.base import Metadata
from schemas.messages.train_request import TrainRequest
from schemas.records.decision import DecisionDraft
from schemas.records.registry import Registry
from services.trainer.data.support import NOTHING_AGAINST_IT
from services.trainer.run.checkpoints import newest_checkpoint
from services.trainer.settings import TrainerSettings

BUSY = "busy"
DONE = "done"
EXIT_BUSY = 75
Tell = Callable[[Mapping[str, Any]], None]
Do = Callable[[Job, bool], AdapterTrained | None]
"""Do a job, maybe dry; None if another process is at it."""


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    stdout = _own_stdout()
    tell = _teller(stdout)
    settings = TrainerSettings.read()
    if given.job is not None:
        outcome = run_job(settings, Job(given.job), tell)
        return 0 if outcome or not is_first_process() else EXIT_BUSY

    def do(job: Job, dry: bool) -> AdapterTrained | None:
        if settings.trainer_processes > 1 and not dry:
            return launch_job(settings, job, stdout)
        return run_job(settings, job, tell, dry=dry)

    return _serve(do, tell) if given.serve else _ask_and_run(settings, given, do, tell)


def run_job(settings: TrainerSettings, job: Job, tell: Tell, *, dry: bool = False) -> AdapterTrained | None:
    """Do it, or take it up where it was left; its outcome is on disk then. None if another process is at it."""
    from services.trainer.run.execution import TrainingRun

    seen = ProgressFile(job.progress, lambda: datetime.now(UTC))

    def tell_all(said: Mapping[str, Any]) -> None:
        seen.hear(said)
        tell(said)

    run = TrainingRun(settings, job, tell_all)
    if not run.writes:
        return run.outcome(dry=dry)
    lock = job.lock()
    if job.outcome is not None or not lock.try_acquire():
        return job.outcome
    try:
        checkpoint = newest_checkpoint(job.checkpoints)
        job.begin(checkpoint.name if checkpoint else "")
        outcome = run.outcome(dry=dry)
        seen.write()
        if outcome is not None and not dry:
            job.outcome = outcome
            failpoint.reach("outcome-written")
        return outcome
    finally:
        lock.release()


def launch_job(settings: TrainerSettings, job: Job, stdout: TextIO) -> AdapterTrained | None:
    """The same in several processes, started by Accelerate. Raises TrainingError if they fail.

    Only its launcher for GPUs starts more than one; where the job is for the CPU, they run there.
    """
    if _taken(job):
        return job.outcome
    command = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_machines", "1"]
    command += ["--num_processes", str(settings.trainer_processes), "--mixed_precision", "no", "--dynamo_backend", "no"]
    command += ["-m", "services.trainer.train", "--job", str(job.folder)]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=stdout, check=False)
    if job.outcome is None and not _taken(job):
        raise TrainingError(f"the processes of run {job.request.request_id} ended with {ended.returncode}")
    return job.outcome


def _taken(job: Job) -> bool:
    """Another process is at it. (Accelerate does not tell how its processes ended, only that they failed.)"""
    lock = job.lock()
    free = lock.try_acquire()
    lock.release()
    return not free


def _serve(do: Do, tell: Tell) -> int:
    """A line that ends the input ends the process, in the middle of a run too: the run is taken up later."""
    import services.trainer.run.execution  # noqa: F401  (the seconds that torch takes are spent before the first job)

    lines: list[str] = []
    come = threading.Condition()

    def listen() -> None:
        for line in sys.stdin:
            with come:
                lines.append(line.strip())
                come.notify()
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    tell({"stage": "ready"})
    while True:
        with come:
            come.wait_for(lambda: lines)
            folder = lines.pop(0)
        outcome = do(Job(Path(folder)), False)
        tell({"stage": DONE if outcome else BUSY, "job": folder})


def _ask_and_run(settings: TrainerSettings, given: argparse.Namespace, do: Do, tell: Tell) -> int:
    job = Jobs(settings.adapters_dir).record(_request(given))
    try:
        outcome = do(job, given.dry_run)
        if outcome is not None and outcome.status == "trained":
            register(settings.adapters_dir, outcome)
    except KeyboardInterrupt:
        job.remove()
        raise
    if given.dry_run:
        job.remove()
        tell({"stage": "ended", "outcome": json.loads(outcome.encode()) if outcome else None})
        return 0 if outcome is not None and outcome.reason == NOTHING_AGAINST_IT else 1
    if outcome is not None:
        job.announced = True
    tell({"stage": "ended", "outcome": json.loads(outcome.encode()) if outcome else None})
    return _exit_code(outcome)


def register(adapters_dir: Path, outcome: AdapterTrained) -> None:
    """Make the adapter known to the registry, as an operator; a running fleet takes it from there."""
    assert outcome.adapter_version is not None
    folder = adapters_dir / outcome.agent_id / outcome.adapter_version
    move = registration(folder, adapters_dir)

    def unless_known(registry: Registry) -> DecisionDraft | None:
        if folder.name in registry.agent(outcome.agent_id).versions:
            return None
        return DecisionDraft(
            agent_id=outcome.agent_id,
            move=move,
            who=f"operator:{getpass.getuser()}",
            at=datetime.now(UTC),
            reason=f"trained in run {outcome.request_id}",
            evidence=outcome.metrics,
        )

    RegistryStore(adapters_dir).update(unless_known)


def _request(given: argparse.Namespace) -> TrainRequest:
    now = datetime.now(UTC)
    known = {"loss": given.loss, "epochs": given.epochs, "learning_rate": given.lr}
    hyperparameters = {name: value for name, value in known.items() if value is not None} | dict(given.set)
    return TrainRequest(
        request_id=f"operator-{now:%Y%m%dT%H%M%S}-{os.urandom(3).hex()}",
        agent_id=given.agent,
        metadata=Metadata(timestamp=now, source="operator"),
        algorithm=given.algorithm,
        parent_version=given.parent,
        since=given.since,
        hyperparameters=hyperparameters,
        seed=given.seed,
    )


def is_first_process() -> bool:
    """Of those that `accelerate launch` started; true without it."""
    return os.environ.get("RANK", "0") == "0"


def _exit_code(outcome: AdapterTrained | None) -> int:
    return 0 if outcome is not None and outcome.status == "trained" else 1


def _own_stdout() -> TextIO:
    """Our lines alone: whatever libraries print goes to stderr."""
    own = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return own


def _teller(stream: TextIO) -> Tell:
    def tell(what: Mapping[str, Any]) -> None:
        stream.write(json.dumps(what) + "\n")
        stream.flush()

    return tell


def _assignment(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=value")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m services.trainer.train", description=__doc__)
    parser.add_argument("--agent", default="small")
    parser.add_argument("--algorithm", default="grpo")
    parser.add_argument("--parent", help="version to start from; the primary if not given")
    parser.add_argument("--since", type=int, default=0, help="first byte of the log to read")
    parser.add_argument("--loss", help="dapo, dr_grpo, gspo or cispo")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--lr", type=float, help="learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", type=_assignment, default=[], metavar="NAME=VALUE")
    parser.add_argument("--dry-run", action="store_true", help="count and check the data, train nothing")
    parser.add_argument("--job", type=Path, help="folder of a recorded run")
    parser.add_argument("--serve", action="store_true", help="take folders of recorded runs from stdin")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RatchetError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
