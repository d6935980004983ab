"""What an operator may remove, sees before, and is refused while an orchestrator works."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ratchet.adapters.registry import RegistryStore
from ratchet.files.folder_lock import FolderLock
from ratchet.logs.follower import FollowerNote, write_follower_note
from ratchet.logs.names import ASSIGNMENTS, INTERACTIONS, source
from ratchet.logs.segments import read_start_offsets
from schemas.records.decision import StartExperiment, Validate
from services.cli.app import app
from tests.ratchet.adapters.making_decisions import decided, experiment, register
from tests.services.orchestrator.old_logs import answer, open_ledger


@pytest.fixture
async def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fleet that is down, whose logs have many segments."""
    monkeypatch.setenv("RATCHET_LOGS_DIR", str(tmp_path))
    monkeypatch.setenv("RATCHET_ADAPTERS_DIR", str(tmp_path / "adapters"))
    ledger = await open_ledger(tmp_path)
    await answer(ledger, 0, 100)
    await ledger.close()
    return tmp_path


def test_first_looked_at_then_removed_then_nothing_left_to_do(logs: Path) -> None:
    run = CliRunner().invoke

    would = json.loads(run(app, ["log", "prune", "--dry-run", "--keep-gb", "0.00001", "--json"]).stdout)
    assert would["dry_run"]
    assert would["removed"]
    assert all((logs / gone["file"]).exists() for gone in would["removed"])

    went = run(app, ["log", "prune", "--keep-gb", "0.00001"])
    assert went.exit_code == 0, went.output
    assert [line.split()[1] for line in went.stdout.splitlines() if line.startswith("gone:")] == [
        gone["file"] for gone in would["removed"]
    ]
    assert not any((logs / gone["file"]).exists() for gone in would["removed"])
    assert read_start_offsets(logs).sequence > 0

    again = run(app, ["log", "prune", "--keep-gb", "1"])
    assert again.stdout.splitlines()[0] == "nothing to remove"


def test_what_is_old_goes_by_days(logs: Path) -> None:
    kept = CliRunner().invoke(app, ["log", "prune", "--keep-gb", "0", "--keep-days", "36500", "--json"])
    assert json.loads(kept.stdout)["removed"] == []

    went = CliRunner().invoke(app, ["log", "prune", "--dry-run", "--keep-gb", "0", "--keep-days", "0.000001"])

    assert "nothing" in went.stdout  # the lines of these logs are of the year 2031


def test_of_a_fleet_that_follows_its_own_part_of_an_experiment_stays(logs: Path) -> None:
    # given an experiment that began late in the logs of the fleet that decides, and at the start of those that follow
    ends = dict.fromkeys((ASSIGNMENTS, INTERACTIONS), 10**9)
    begins = {source(1, name): 0 for name in ends}
    running = experiment("v1.0.1").model_copy(update={"parameters": {"positions": ends | begins}})
    moves = (register("v1.0.1"), Validate(version="v1.0.1"), StartExperiment(experiment=running))
    decided(RegistryStore(logs / "adapters"), *moves)
    prune = ["log", "prune", "--dry-run", "--keep-gb", "0.00001", "--json"]
    assert json.loads(CliRunner().invoke(app, prune).stdout)["removed"]

    # when the fleet of these logs follows
    write_follower_note(logs, FollowerNote(1, {}))

    # then nothing goes
    held = json.loads(CliRunner().invoke(app, prune).stdout)
    assert held["removed"] == []
    assert "experiment canary-v1.0.1 runs on it" in held["held"]["why"]


def test_an_orchestrator_at_work_does_it_itself(logs: Path) -> None:
    lock = FolderLock(logs)
    assert lock.try_acquire()

    refused = CliRunner().invoke(app, ["log", "prune"])

    assert refused.exit_code == 1
    assert "RATCHET_LOG_KEEP_GB" in refused.output
    assert CliRunner().invoke(app, ["log", "prune", "--dry-run"]).exit_code == 0
    lock.release()
