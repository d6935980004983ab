"""`ratchet train` before a trainer is started: what there is to train, and how much it takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ratchet.cli.app import app
from ratchet.cli.fleet.folder import FleetFolder
from ratchet.cli.fleet.options import FleetOptions
from ratchet.cli.train.command import train
from ratchet.training_runs.run import LEAST_GROUPS
from tests.ratchet.cli.started import started


@pytest.mark.parametrize("engine", ["echo", "scripted"])
@pytest.mark.parametrize("typed", [[], ["--queue"], ["--dry-run"]])
def test_a_fleet_that_answers_without_a_model_is_told_what_has_one(
    tmp_path: Path, engine: str, typed: list[str]
) -> None:
    FleetFolder(tmp_path).write_record(started(FleetOptions(engine=engine), {}))

    run = CliRunner().invoke(app, ["train", *typed], env={"RATCHET_STATE_DIR": str(tmp_path)})

    assert run.exit_code == 1
    assert f"the engine {engine} of this fleet answers without a model" in run.stderr
    assert "ratchet down, then ratchet up" in run.stderr


def test_what_a_training_takes_is_in_its_help() -> None:
    assert LEAST_GROUPS == 8
    assert train.__doc__ is not None and "eight groups at least" in train.__doc__
