"""`python -m services.trainer.train`: one training run in this process, its progress on stdout as JSON lines.

Three ways: `--request JSON` records a run, does it and registers the adapter; `--job FOLDER` does a run that was
recorded (for `accelerate launch`: `accelerate launch -m services.trainer.train --job FOLDER`); `--serve` reads one such
folder a line from stdin, so that torch and TRL are imported once. In the last, the process ends with its stdin.

A fourth trains nothing: `--evaluation FILE` gives what `ratchet eval` found to the trackers.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from ratchet.adapters.publish import registration
from ratchet.adapters.registry import RegistryStore
from ratchet.runs.progress import ProgressFile
from ratchet.runs.run import NOTHING_AGAINST_IT
from ratchet.runs.store import RunFolder, RunStore, cancel_reason
from ratchet.service import failpoint
from ratchet.service.errors import RatchetError, TrainingError
from schemas.messages.training import AdapterTrained, TrainRequest
from schemas.records.decision import DecisionDraft
from schemas.records.evaluation import Evaluation
from schemas.records.registry import Registry
from services.trainer.settings import TrainerSettings

BUSY = "busy"
DONE = "done"
EXIT_BUSY = 75
EXIT_CANCELLED = 130
Emit = Callable[[Mapping[str, Any]], None]
Do = Callable[[RunFolder, bool], AdapterTrained | None]
"""Do a run, maybe dry; None if another process is at it, or at another run of its agent."""


class Cancelled(TrainingError):
    """The run was ended by a person, who is named."""


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    stdout = _own_stdout()
    emit = _emitter(stdout)
    settings = TrainerSettings.read()
    if settings.trainer_report_to:
        from services.trainer.run.trackers import keep_with_the_logs

        keep_with_the_logs(settings)
    if given.evaluation is not None:
        return _track(settings, Evaluation.decode(given.evaluation.read_bytes()), emit)
    if given.job is not None:
        return _job(settings, RunFolder(given.job), emit)

    def do(folder: RunFolder, dry: bool) -> AdapterTrained | None:
        if settings.trainer_launches and not dry:
            return launch_run(settings, folder, stdout)
        return do_run(settings, folder, emit, dry=dry)

    if given.serve:
        if not settings.trainer_launches:  # the seconds that torch takes are spent before the first run
            import services.trainer.run.execution  # noqa: F401
        return _serve(do, emit)
    return _record_and_run(settings, TrainRequest.decode(given.request), do, emit, dry=given.dry_run)


def _track(settings: TrainerSettings, evaluation: Evaluation, emit: Emit) -> int:
    from services.trainer.run.trackers import track_evaluation

    faults = track_evaluation(settings, evaluation)
    for fault in faults:
        emit({"stage": "tracking", "warning": fault})
    return 1 if faults else 0


def _job(settings: TrainerSettings, folder: RunFolder, emit: Emit) -> int:
    """One of several processes: where the first ends with an error, Accelerate ends the others, which wait for it."""
    outcome = do_run(settings, folder, emit)
    _end_distributed_threads()
    if not is_first_process():
        return 0
    if outcome is None:
        return EXIT_BUSY
    return EXIT_CANCELLED if folder.cancelled_by and outcome.status == "failed" else 0


def _end_distributed_threads() -> None:
    """End torch's threads: one that asks for the interpreter while it ends aborts the process."""
    from torch import distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()


def do_run(settings: TrainerSettings, folder: RunFolder, emit: Emit, *, dry: bool = False) -> AdapterTrained | None:
    """Do it, or take it up where it was left; its outcome is on disk then.

    None if another process is at it, or at another run of its agent. Of several processes the first one writes.
    """
    from services.trainer.run.checkpoints import newest_checkpoint
    from services.trainer.run.execution import RunExecution

    if not is_first_process():
        return RunExecution(settings, folder, lambda _: None).outcome(dry=dry)
    progress = ProgressFile(folder.progress, lambda: datetime.now(UTC))

    def emit_and_record(event: Mapping[str, Any]) -> None:
        progress.record(event)
        emit(event)
        if (who := folder.cancelled_by) is not None:
            raise Cancelled(cancel_reason(who))

    with folder.claim(alone=not dry) as mine:
        if not mine or folder.outcome is not None:
            return folder.outcome
        checkpoint = newest_checkpoint(folder.checkpoints)
        folder.begin(checkpoint.name if checkpoint else "")
        outcome = RunExecution(settings, folder, emit_and_record).outcome(dry=dry)
        progress.write()
        if outcome is not None and not dry:
            folder.outcome = outcome
            failpoint.reach("outcome-written")
        return outcome


def launch_run(settings: TrainerSettings, folder: RunFolder, stdout: TextIO) -> AdapterTrained | None:
    """The same in several processes, started by Accelerate. Raises TrainingError if they fail."""
    if not folder.is_free:
        return folder.outcome
    if settings.trainer_machines > 1:
        folder.meeting = f"{settings.trainer_main_address} {time.time_ns()}"
    ended = subprocess.run(launch_command(settings, folder), stdin=subprocess.DEVNULL, stdout=stdout, check=False)
    if folder.outcome is None and folder.is_free:
        raise TrainingError(f"the processes of run {folder.request.request_id} ended with {ended.returncode}")
    return folder.outcome


def launch_command(settings: TrainerSettings, folder: RunFolder) -> list[str]:
    """Return the command that starts this machine's processes of a run."""
    return [*_launcher(settings), "-m", "services.trainer.train", "--job", str(folder.path)]


def _launcher(settings: TrainerSettings) -> list[str]:
    """`accelerate launch` by the settings. Only for GPUs does it start more than one; on a CPU they run there."""
    command = [sys.executable, "-m", "accelerate.commands.launch"]
    if settings.trainer_accelerate_config:
        return [*command, "--config_file", settings.trainer_accelerate_config, *_machines(settings)]
    kind = ["--use_fsdp", "--fsdp_version", "2"] if settings.trainer_fsdp else ["--multi_gpu"]
    count = _machines(settings) or ["--num_machines", "1", "--num_processes", str(settings.trainer_processes)]
    return [*command, *kind, *count, "--mixed_precision", "no", "--dynamo_backend", "no"]


def _machines(settings: TrainerSettings) -> list[str]:
    """Return how this machine finds the others; nothing where there is one."""
    if settings.trainer_machines == 1 or settings.trainer_main_address is None:
        return []
    host, _, port = settings.trainer_main_address.rpartition(":")
    processes = settings.trainer_machines * settings.trainer_processes
    count = ["--num_machines", str(settings.trainer_machines), "--num_processes", str(processes)]
    place = ["--machine_rank", str(settings.trainer_machine_rank)]
    return [*count, *place, "--main_process_ip", host, "--main_process_port", port]


def _serve(do: Do, emit: Emit) -> int:
    """A line that ends the input ends the process, in the middle of a run too: the run is taken up later."""
    lines: list[str] = []
    come = threading.Condition()

    def listen() -> None:
        for line in sys.stdin:
            with come:
                lines.append(line.strip())
                come.notify()
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    emit({"stage": "ready"})
    while True:
        with come:
            come.wait_for(lambda: lines)
            path = lines.pop(0)
        outcome = do(RunFolder(Path(path)), False)
        emit({"stage": DONE if outcome else BUSY, "run": path})


def _record_and_run(settings: TrainerSettings, request: TrainRequest, do: Do, emit: Emit, *, dry: bool) -> int:
    store = RunStore(settings.adapters_dir)
    folder = store.folder(request.agent_id, request.request_id)
    emit({"stage": "starting", "folder": str(folder.path.absolute())})
    store.record(request)
    try:
        outcome = do(folder, dry)
        if outcome is not None and outcome.status == "trained":
            register(settings, outcome)
    except KeyboardInterrupt:
        folder.remove()
        raise
    if dry:
        folder.remove()
        emit({"stage": "ended", "outcome": json.loads(outcome.encode()) if outcome else None})
        return 0 if outcome is not None and outcome.reason == NOTHING_AGAINST_IT else 1
    if outcome is None:  # somebody else was quicker
        folder.remove()
        emit({"stage": BUSY})
        return EXIT_BUSY
    folder.announced = True
    emit({"stage": "ended", "outcome": json.loads(outcome.encode())})
    return 0 if outcome.status == "trained" else 1


def register(settings: TrainerSettings, outcome: AdapterTrained) -> None:
    """Make the adapter known to the registry, as an operator; a running fleet takes it from there."""
    assert outcome.adapter_version is not None
    folder = settings.adapters_dir / outcome.agent_id / outcome.adapter_version
    move = registration(folder, settings.adapters_dir)

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

    RegistryStore.from_settings(settings).update(unless_known)


def is_first_process() -> bool:
    """Return whether this is the first process that `accelerate launch` started; true without it."""
    return os.environ.get("RANK", "0") == "0"


def _own_stdout() -> TextIO:
    """Our lines alone: whatever libraries print goes to stderr."""
    own = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return own


def _emitter(stream: TextIO) -> Emit:
    def emit(event: Mapping[str, Any]) -> None:
        with suppress(BrokenPipeError):  # a terminal that is gone takes no run with it: ratchet train --watch
            stream.write(json.dumps(event) + "\n")
            stream.flush()

    return emit


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m services.trainer.train", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--request", help="a TrainRequest as JSON")
    what.add_argument("--job", type=Path, help="folder of a recorded run")
    what.add_argument("--evaluation", type=Path, help="the file of an evaluation, for the trackers")
    what.add_argument("--serve", action="store_true", help="take folders of recorded runs from stdin")
    parser.add_argument("--dry-run", action="store_true", help="of a request: count and check the data, train nothing")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RatchetError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
