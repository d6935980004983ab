"""Run the trainer in a process of its own: the command line itself never imports torch.

The process has a session of its own too: a Ctrl-C is for the person at the terminal to decide on, and a terminal that
is closed takes no training with it.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, TextIO

from ratchet.training_runs.store import RunFolder
from schemas.messages.train_request import TrainRequest
from services.cli.fleet.folder import FleetAccess
from services.cli.terminal import CommandError

LAST_LINES = 5
STOP_WAIT_S = 10.0
Events = queue.SimpleQueue[Mapping[str, Any] | None]


class OnInterrupt(Enum):
    """What becomes of the run after a Ctrl-C."""

    CANCEL = "cancel"
    LEAVE = "leave"
    """It goes on by itself."""
    GO_ON = "go on"
    """As if nothing had been typed."""


class SomebodyIsAtIt(CommandError):
    """Another run of the agent began a moment before."""


class Left(Exception):
    """The run goes on without this terminal."""


class TrainingHere:
    """One run, asked for by this terminal. `on_interrupt` is asked at each Ctrl-C; `who` is at the terminal."""

    def __init__(
        self,
        request: TrainRequest,
        access: FleetAccess,
        on_event: Callable[[Mapping[str, Any]], None],
        on_interrupt: Callable[[], OnInterrupt],
        who: str,
        *,
        dry_run: bool = False,
        command: tuple[str, ...] = (sys.executable, "-m", "services.trainer.train"),
    ) -> None:
        self._request, self._dry_run = request, dry_run
        self._access = access
        self._on_event = on_event
        self._on_interrupt = on_interrupt
        self._who = who
        self._command = command
        self._events = Events()
        self._folder: RunFolder | None = None

    def outcome(self) -> Any:
        """An AdapterTrained as JSON: the run's own, or that it was cancelled.

        Raises Left, SomebodyIsAtIt; CommandError with the process's last lines where it ends without an outcome.
        """
        with tempfile.TemporaryFile("w+") as errors:
            trainer = subprocess.Popen(
                [*self._command, *(["--dry-run"] if self._dry_run else []), "--request", self._request.encode()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=trainer_environment(self._access),
                start_new_session=True,
            )
            assert trainer.stdout is not None
            threading.Thread(target=_read, args=(trainer.stdout, self._events), daemon=True).start()
            while True:
                try:
                    outcome = self._follow()
                except KeyboardInterrupt:
                    decided = self._on_interrupt()
                    if decided is OnInterrupt.LEAVE:
                        raise Left from None
                    if decided is OnInterrupt.GO_ON:
                        continue
                    outcome = self._cancelled(trainer)
                trainer.wait()
                if outcome is None:
                    raise CommandError(self._how_it_failed(trainer.returncode, errors))
                return outcome

    def _follow(self) -> Any:
        """Its outcome; None where it ended without one. Raises SomebodyIsAtIt."""
        while (event := self._events.get()) is not None:
            match event["stage"]:
                case "ended":
                    return event["outcome"]
                case "busy":
                    raise SomebodyIsAtIt("another run of the agent began a moment before: ratchet train --watch")
                case "starting":
                    self._folder = RunFolder(Path(event["folder"]))
            self._on_event(event)
        return None

    def _cancelled(self, trainer: subprocess.Popen[str]) -> Any:
        """Ended at once; what had ended before stays as it ended."""
        _end(trainer)
        self._hear_the_rest()
        folder = self._folder
        if folder is None or not folder.path.exists():
            raise KeyboardInterrupt
        if self._dry_run:
            folder.remove()
            raise KeyboardInterrupt
        folder.cancel(self._who)
        folder.announced = True
        outcome = folder.outcome
        assert outcome is not None
        return json.loads(outcome.encode())

    def _hear_the_rest(self) -> None:
        """Which run it was, where it had just said so."""
        with suppress(queue.Empty):
            while (event := self._events.get(timeout=1.0)) is not None:
                if event["stage"] == "starting":
                    self._folder = RunFolder(Path(event["folder"]))

    def _how_it_failed(self, code: int, errors: TextIO) -> str:
        errors.seek(0)
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else "failed"
        said = " / ".join(errors.read().splitlines()[-LAST_LINES:]) or "it said nothing"
        if self._folder is None or self._folder.outcome is not None or self._dry_run:
            return f"the trainer {how}: {said}"
        run = self._folder.request.request_id
        return (
            f"the trainer {how}: {said}. Run {run} is unfinished, and a trainer of the fleet takes it up from its last "
            f"checkpoint: ratchet train --watch; or ratchet train --cancel {run}"
        )


def _read(stream: TextIO, events: Events) -> None:
    """In a thread: a Ctrl-C in the middle of a line would lose it."""
    for line in stream:
        events.put(json.loads(line))
    events.put(None)


def _end(trainer: subprocess.Popen[str]) -> None:
    """It and its processes. Whatever it is doing: all it leaves on disk is whole."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(trainer.pid, how)
            trainer.wait(STOP_WAIT_S)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
        return
    trainer.wait()


def require_model(access: FleetAccess) -> None:
    """Raises CommandError where the fleet's agents have no model, and the environment names none."""
    options = access.record and access.record.options
    if options and not options.has_model and "RATCHET_TRAINER_MODEL" not in os.environ:
        raise CommandError(
            f"there is nothing to train: the engine {options.engine} of this fleet answers without a model. Start one "
            "that has a model: ratchet down, then ratchet up (--engine transformers or vllm)"
        )


def trainer_environment(access: FleetAccess) -> dict[str, str]:
    """The fleet's folder of logs, and its model if `ratchet up` was told one; the environment's word goes first."""
    known = {"RATCHET_LOGS_DIR": str(access.logs_dir)}
    if access.record and access.record.options.engine == "transformers":
        known["RATCHET_TRAINER_MODEL"] = access.record.options.model
    return known | os.environ
