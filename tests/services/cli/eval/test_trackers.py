"""`ratchet eval` has the trainer's process give the evaluation to the trackers; what fails there costs a sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from services.cli.eval.command import end, give_to_trackers
from tests.waiting import wait_until

EVALUATION = Path("held_out-1.json")


def trainer(program: str) -> tuple[str, ...]:
    """In its place: it gets `--evaluation FILE`."""
    return (sys.executable, "-c", f"import sys\n{program}")


@pytest.mark.parametrize("named", [{}, {"RATCHET_TRAINER_REPORT_TO": " "}])
def test_without_a_tracker_nothing_is_started(named: dict[str, str]) -> None:
    assert give_to_trackers(EVALUATION, named, ("/no/such/program",)) is None


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("assert sys.argv[1:] == ['--evaluation', 'held_out-1.json']", None),
        ("""print('{"stage": "tracking", "warning": "wandb did not get it"}'); sys.exit(1)""", "wandb did not get it"),
        ("sys.exit('what it wrote\\nnot installed')", "no tracker got the evaluation: not installed"),
        ("sys.exit(3)", "no tracker got the evaluation: its process ended with 3"),
    ],
)
def test_what_did_not_get_it_is_said_in_a_sentence(program: str, said: str | None) -> None:
    found = give_to_trackers(EVALUATION, {"RATCHET_TRAINER_REPORT_TO": "wandb"}, trainer(program))

    assert found is None if said is None else (found or "").startswith(said)


def test_a_tracker_that_hangs_is_not_waited_for_without_end() -> None:
    hangs = trainer("import signal; signal.pause()")

    found = give_to_trackers(EVALUATION, {"RATCHET_TRAINER_REPORT_TO": "wandb"}, hangs, most_s=1.0)

    assert found == "the trackers did not take the evaluation within 1 s"


def test_a_tracker_s_helpers_end_with_its_process() -> None:
    command = ["sh", "-c", "setsid sleep 600 & echo $!; sleep 600 & echo $!; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        helpers = [psutil.Process(int(process.stdout.readline())) for _ in range(2)]

        end(process)

    wait_until(lambda: not any(map(runs, helpers)), "their end")


def runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
