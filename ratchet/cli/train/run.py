"""Run the trainer in a process of its own: the command line itself never imports torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ratchet.cli.fleet.folder import FleetAccess
from ratchet.cli.terminal import CommandError

LAST_LINES = 5


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """As typed; what is None is the trainer's choice. `assignments`: hyperparameters as name=value."""

    agent: str
    algorithm: str
    parent: str | None
    since: int
    loss: str | None
    epochs: int | None
    lr: float | None
    seed: int
    assignments: tuple[str, ...]
    dry_run: bool

    @property
    def arguments(self) -> list[str]:
        """Of `python -m services.trainer.train`."""
        named = {
            "--agent": self.agent,
            "--algorithm": self.algorithm,
            "--parent": self.parent,
            "--since": self.since,
            "--loss": self.loss,
            "--epochs": self.epochs,
            "--lr": self.lr,
            "--seed": self.seed,
        }
        given = [f"{name}={value}" for name, value in named.items() if value is not None]
        return [*given, *(f"--set={pair}" for pair in self.assignments), *(["--dry-run"] if self.dry_run else [])]


def run_training(options: TrainOptions, access: FleetAccess, on_event: Callable[[Mapping[str, Any]], None]) -> Any:
    """The run's outcome, an AdapterTrained as JSON. Each thing the trainer reports goes to `on_event`.

    Ctrl-C ends the trainer, which forgets the run. Raises CommandError with the last lines if it fails.
    """
    with tempfile.TemporaryFile("w+") as errors:
        trainer = subprocess.Popen(
            [sys.executable, "-m", "services.trainer.train", *options.arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=_environment(access),
        )
        try:
            outcome = _listen(trainer, on_event)
        finally:
            if trainer.poll() is None:
                trainer.send_signal(signal.SIGINT)
                trainer.wait()
        if outcome is None:
            errors.seek(0)
            raise CommandError(f"the trainer failed: {' / '.join(errors.read().splitlines()[-LAST_LINES:])}")
        return outcome


def _listen(trainer: subprocess.Popen[str], on_event: Callable[[Mapping[str, Any]], None]) -> Any:
    assert trainer.stdout is not None
    outcome = None
    for line in trainer.stdout:
        said = json.loads(line)
        if said["stage"] == "ended":
            outcome = said["outcome"]
        else:
            on_event(said)
    trainer.wait()
    return outcome


def _environment(access: FleetAccess) -> dict[str, str]:
    """The fleet's folder of logs, and its model if `ratchet up` was told one; the environment's word goes first."""
    known = {"RATCHET_LOGS_DIR": str(access.logs_dir)}
    if access.record and access.record.options.engine == "transformers":
        known["RATCHET_TRAINER_MODEL"] = access.record.options.model
    return known | os.environ
