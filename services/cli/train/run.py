"""Ask for a training run: of the fleet's trainer by the queue, or of a trainer in a process of this terminal.

The command line itself never imports torch. The process has a session of its own: the person at the terminal decides
what a Ctrl-C does, and a terminal that is closed ends no training.
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
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, TextIO

from pydantic import ValidationError

from ratchet.runs.store import RunFolder
from schemas.messages.base import Metadata, explain
from schemas.messages.training import TrainRequest
from services.cli.fleet.folder import FleetAccess
from services.cli.terminal import CommandError, UsageError

LAST_LINES = 5
STOP_WAIT_S = 10.0
Events = queue.SimpleQueue[Mapping[str, Any] | None]


class OnInterrupt(Enum):
    """Decision about the run after a Ctrl-C."""

    CANCEL = "cancel"
    LEAVE = "leave"
    """It goes on by itself."""
    GO_ON = "go on"
    """Go on as if nothing had been typed."""


class SomebodyIsAtIt(CommandError):
    """Another run of the agent began a moment before."""


class Left(Exception):
    """The run goes on without this terminal."""


class TrainingHere:
    """Does one run for this terminal. `on_interrupt` decides at each Ctrl-C; `who` is the person at the terminal."""

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
        """Return an AdapterTrained as JSON: the run's own, or that it was cancelled.

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
            threading.Thread(target=_read_events, args=(trainer.stdout, self._events), daemon=True).start()
            while True:
                try:
                    outcome = self._follow()
                except KeyboardInterrupt:
                    decided = self._on_interrupt()
                    if decided is OnInterrupt.LEAVE:
                        raise Left from None
                    if decided is OnInterrupt.GO_ON:
                        continue
                    outcome = self._cancel(trainer)
                trainer.wait()
                if outcome is None:
                    raise CommandError(self._describe_failure(trainer.returncode, errors))
                return outcome

    def _follow(self) -> Any:
        """Return its outcome; None where it ended without one. Raises SomebodyIsAtIt."""
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

    def _cancel(self, trainer: subprocess.Popen[str]) -> Any:
        """End the run now. One that had ended before stays as it ended."""
        _end_process(trainer)
        self._drain_events()
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

    def _drain_events(self) -> None:
        """Read the last events: the run's folder may be among them."""
        with suppress(queue.Empty):
            while (event := self._events.get(timeout=1.0)) is not None:
                if event["stage"] == "starting":
                    self._folder = RunFolder(Path(event["folder"]))

    def _describe_failure(self, code: int, errors: TextIO) -> str:
        errors.seek(0)
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else "failed"
        last = " / ".join(errors.read().splitlines()[-LAST_LINES:]) or "it said nothing"
        if self._folder is None or self._folder.outcome is not None or self._dry_run:
            return f"the trainer {how}: {last}"
        run = self._folder.request.request_id
        return (
            f"the trainer {how}: {last}. Run {run} is unfinished, and a trainer of the fleet takes it up from its last "
            f"checkpoint: ratchet train --watch; or ratchet train --cancel {run}"
        )


def _read_events(stream: TextIO, events: Events) -> None:
    """Read events in a thread: a Ctrl-C in the middle of a line would lose it."""
    for line in stream:
        events.put(json.loads(line))
    events.put(None)


def _end_process(trainer: subprocess.Popen[str]) -> None:
    """End it and its processes. All that it leaves on disk is whole."""
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
    """Return the fleet's folder of logs, and its model if `ratchet up` was given one. The environment goes first."""
    known = {"RATCHET_LOGS_DIR": str(access.logs_dir)}
    if access.record and access.record.options.engine == "transformers":
        known["RATCHET_TRAINER_MODEL"] = access.record.options.model
    return known | os.environ


def build_request(
    agent: str, algorithm: str, parent: str | None, since: int, seed: int, hyperparameters: Mapping[str, Any]
) -> TrainRequest:
    """Return a request with an id of its own. Raises UsageError for a malformed one; the trainer checks the rest."""
    now = datetime.now(UTC)
    try:
        return TrainRequest(
            request_id=f"operator-{now:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}",
            agent_id=agent,
            metadata=Metadata(timestamp=now, source="operator"),
            algorithm=algorithm,
            parent_version=parent,
            since=since,
            hyperparameters=dict(hyperparameters),
            seed=seed,
        )
    except ValidationError as error:
        raise UsageError(explain("request to train", error)) from None


def parse_hyperparameters(
    loss: str | None, epochs: int | None, lr: float | None, assignments: Sequence[str]
) -> dict[str, Any]:
    """Return those that were typed. Raises UsageError for what is no assignment."""
    typed = {"loss": loss, "epochs": epochs, "learning_rate": lr}
    return {name: value for name, value in typed.items() if value is not None} | dict(map(_parse_pair, assignments))


def _parse_pair(text: str) -> tuple[str, Any]:
    """Read `name=value`, where the value is JSON, or else text."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UsageError(f"--set {text!r} is not of the form name=value")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def publish_train_request(access: FleetAccess, request: TrainRequest) -> None:
    """Returns once the broker has it. Raises BusError, FleetError."""
    with access.client(replies=False) as fleet:
        fleet.train(request)
