"""Runs on disk: of an agent one at a time, whatever dies, and an end that anybody can bring about."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ratchet.runs.store import RunFolder, RunStore
from schemas.messages.training import TrainRequest

HOLD = """
import sys
from pathlib import Path
from ratchet.runs.store import RunFolder
with RunFolder(Path(sys.argv[1])).claim() as mine:
    print(mine, flush=True)
    sys.stdin.read()  # until it is killed
"""


def record_run(adapters: Path, run_id: str, agent: str = "small") -> RunFolder:
    return RunStore(adapters).record(TrainRequest(request_id=run_id, agent_id=agent))


def test_of_an_agent_one_run_is_claimed_at_a_time(tmp_path: Path) -> None:
    one, two, others = (
        record_run(tmp_path, "run-1"),
        record_run(tmp_path, "run-2"),
        record_run(tmp_path, "run-3", agent="coder"),
    )

    with one.claim() as mine, two.claim() as second, others.claim() as of_another_agent:
        assert (mine, second, of_another_agent) == (True, False, True)
        assert (one.is_taken, two.is_taken, two.is_free) == (True, False, False)
        assert RunStore(tmp_path).at_work("small") is not None
        with two.claim(alone=False) as dry:
            assert dry

    assert (one.is_free, two.is_free) == (True, True)
    assert RunStore(tmp_path).at_work("small") is None
    assert RunStore(tmp_path).at_work("nobody") is None


def test_a_claim_dies_with_its_process(tmp_path: Path) -> None:
    one, two = record_run(tmp_path, "run-1"), record_run(tmp_path, "run-2")
    command = [sys.executable, "-c", HOLD, str(one.path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    at_work = RunStore(tmp_path).at_work("small")
    assert at_work is not None and at_work.path == one.path
    assert at_work.holder.startswith(f"pid {holder.pid} on ")
    assert not two.is_free

    holder.kill()
    holder.wait()

    assert two.is_free


def test_a_run_that_nobody_is_at_has_ended_once_it_is_cancelled(tmp_path: Path) -> None:
    folder = record_run(tmp_path, "run-1")

    folder.cancel("operator:ann")

    outcome = folder.outcome
    assert outcome is not None
    assert (outcome.status, outcome.reason) == ("failed", "cancelled by operator:ann")
    assert RunStore(tmp_path).unannounced_runs() != []  # whoever asked for it is to hear


def test_a_run_that_somebody_is_at_is_only_marked(tmp_path: Path) -> None:
    folder = record_run(tmp_path, "run-1")

    with folder.claim():
        folder.cancel("operator:ann")

    assert folder.outcome is None
    assert folder.cancelled_by == "operator:ann"
