"""`ratchet train` before a trainer is started: what there is to train, and how much it takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ratchet.adapters.registry import RegistryStore
from ratchet.runs.run import LEAST_GROUPS
from ratchet.runs.store import RunStore
from schemas.messages.base import Metadata
from schemas.messages.training import AdapterTrained, TrainRequest
from services.cli.app import app
from services.cli.fleet.folder import FleetFolder
from services.cli.fleet.options import FleetOptions
from services.cli.train.command import LEAST_UNITS, train
from tests.ratchet.adapters.making_adapters import NOON
from tests.ratchet.adapters.making_decisions import decided, to_canary
from tests.services.cli.started import started


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


def test_a_terminal_reads_what_is_on_its_way_first_and_what_follows_last(tmp_path: Path) -> None:
    decided(RegistryStore(tmp_path), *to_canary("v1.0.1"))
    request = TrainRequest(request_id="run-1", agent_id="small", metadata=Metadata(timestamp=NOON, source="operator"))
    version = {"adapter_version": "v1.0.2", "adapter_sha256": "a" * 64, "parent_version": "v1.0.0"}
    RunStore(tmp_path).record(request).outcome = AdapterTrained(
        request_id="run-1", agent_id="small", status="trained", **version
    )
    env = {"RATCHET_STATE_DIR": str(tmp_path), "RATCHET_ADAPTERS_DIR": str(tmp_path)}
    env["RATCHET_AMQP_URL"] = "amqp://127.0.0.1:1"

    begun = CliRunner().invoke(app, ["train", "--queue"], env=env)
    ended = CliRunner().invoke(app, ["train", "--watch", "run-1"], env=env | {LEAST_UNITS: "7"})

    assert "v1.0.1 (canary) is on its way" in " ".join(begun.stderr.split())
    assert ended.exit_code == 0 and "at least 7 of each" in " ".join(ended.stderr.split())
