"""A run of this terminal: it ends, is cancelled, is left to itself; and what is said where its process dies."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ratchet.bus.topology import fleet_topology
from ratchet.runs.store import RunFolder, RunStore
from services.cli.fleet.folder import FleetAccess
from services.cli.terminal import CommandError
from services.cli.train.run import Left, OnInterrupt, SomebodyIsAtIt, TrainingHere
from tests.services.cli.train.test_train_request import request

DOUBLE = str(Path(__file__).with_name("scripted_trainer.py"))


class Terminal:
    """A person types Ctrl-C at an event, and answers what is asked then."""

    def __init__(self, folder: Path, *, interrupt_at: str = "", answers: tuple[OnInterrupt, ...] = ()) -> None:
        self.folder = folder
        self.seen: list[str] = []
        self._interrupt_at = interrupt_at
        self._answers = iter(answers)

    def on_event(self, event: Mapping[str, Any]) -> None:
        self.seen.append(event["stage"])
        if event["stage"] == self._interrupt_at:
            raise KeyboardInterrupt

    def run(self, script: str, *, dry_run: bool = False) -> Any:
        access = FleetAccess("", "", ("small",), fleet_topology(("small",)), self.folder / "logs", None)
        here = TrainingHere(
            request(),
            access,
            self.on_event,
            lambda: next(self._answers),
            "operator:ann",
            dry_run=dry_run,
            command=(sys.executable, DOUBLE, str(self.folder / "adapters"), script),
        )
        return here.outcome()

    @property
    def record(self) -> RunFolder:
        return RunStore(self.folder / "adapters").folder("small", "run-1")


def test_what_the_trainer_says_is_shown_and_its_end_is_returned(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)

    outcome = terminal.run("starting training trained")

    assert outcome["status"] == "trained"
    assert terminal.seen == ["starting", "training"]


def test_a_cancelled_run_has_ended_and_nobody_takes_it_up(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, interrupt_at="training", answers=(OnInterrupt.CANCEL,))

    outcome = terminal.run("starting training wait")

    assert (outcome["status"], outcome["reason"]) == ("failed", "cancelled by operator:ann")
    assert not terminal.record.is_taken
    assert RunStore(tmp_path / "adapters").unfinished_runs() == []


def test_a_run_that_is_left_to_itself_goes_on(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, interrupt_at="training", answers=(OnInterrupt.LEAVE,))

    with pytest.raises(Left):
        terminal.run("starting training wait")

    assert terminal.record.is_taken
    pid = int(terminal.record.holder.split()[1])
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_looking_on_misses_nothing(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, interrupt_at="training", answers=(OnInterrupt.GO_ON,) * 2)

    outcome = terminal.run("starting training training publishing trained")

    assert outcome["status"] == "trained"
    assert terminal.seen == ["starting", "training", "training", "publishing"]


def test_a_dry_run_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, interrupt_at="starting", answers=(OnInterrupt.CANCEL,))

    with pytest.raises(KeyboardInterrupt):
        terminal.run("starting wait", dry_run=True)

    assert not terminal.record.path.exists()


def test_another_run_that_was_quicker_is_named(tmp_path: Path) -> None:
    with pytest.raises(SomebodyIsAtIt, match="ratchet train --watch"):
        Terminal(tmp_path).run("starting busy")


def test_a_process_that_dies_is_said_to_have_left_its_run_to_the_fleet(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"killed by SIGKILL.*run-1 is unfinished.*ratchet train --cancel run-1"):
        Terminal(tmp_path).run("starting training die")
