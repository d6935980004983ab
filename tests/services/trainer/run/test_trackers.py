"""A run's figures in the trackers that teams have: the real trackio and the real TensorBoard, on this machine alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ratchet.runs.store import RunStore
from ratchet.service.errors import SettingsError
from schemas.messages.training import TrainRequest
from services.trainer.settings import TrainerSettings
from services.trainer.train import do_run
from tests.services.trainer.forked_runs import STDOUT, ForkedRuns
from tests.services.trainer.run.test_disturbed_runs import environment_of

REQUEST = TrainRequest(request_id="run-1", agent_id="small", hyperparameters={"beta": 0.01})
FIGURES = {"loss", "reward", "kl", "entropy", "gap", "effective_share"}


def of_trackio(folder: Path, run: str) -> list[dict[str, Any]]:
    """What another process finds, as a person who opens the dashboard does."""
    program = (
        "import json, trackio; from trackio.sqlite_storage import SQLiteStorage; "
        "found = {run.name: SQLiteStorage.get_logs('ratchet', run.name) for run in trackio.Api().runs('ratchet')}; "
        "print(json.dumps(found, default=str))"
    )
    said = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TRACKIO_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    runs: dict[str, list[dict[str, Any]]] = json.loads(said.stdout.splitlines()[-1])
    return runs[run]


def of_tensorboard(folder: Path) -> dict[str, list[float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {name: [event.value for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_each_step_is_in_trackio_and_in_tensorboard(
    settings: TrainerSettings, forks: ForkedRuns, tmp_path: Path
) -> None:
    boards = tmp_path / "boards"
    job = RunStore(settings.adapters_dir).record(REQUEST)
    environment = environment_of(settings) | {
        "RATCHET_TRAINER_HYPERPARAMETERS": json.dumps(settings.trainer_hyperparameters),
        "RATCHET_TRAINER_REPORT_TO": "trackio, tensorboard",
        "TRACKIO_DIR": str(tmp_path / "trackio"),
        "TENSORBOARD_LOGGING_DIR": str(boards),
    }

    # when a process of its own does the run, as at the service
    ended = forks.attempt(job, environment)

    outcome = job.outcome
    assert outcome is not None and (ended, outcome.status) == ("ended", "trained"), outcome
    events = map(json.loads, (job.path / STDOUT).read_text().splitlines())
    assert [event["warning"] for event in events if "warning" in event] == []
    steps: Any = outcome.metrics["steps"]
    rows = [row for row in of_trackio(tmp_path / "trackio", "small-run-1") if "train/loss" in row]
    assert [row["train/global_step"] for row in rows] == list(range(1, steps + 1))
    assert {f"train/{name}" for name in FIGURES} <= rows[-1].keys()
    curves = of_tensorboard(boards / "small" / "run-1")
    assert len(curves["train/loss"]) == steps
    assert curves["train/loss"][-1] == pytest.approx(outcome.metrics["last_loss"])
    assert {f"train/{name}" for name in FIGURES} <= curves.keys()


def test_a_tracker_that_fails_ends_no_training(
    settings: TrainerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a-file").write_text("no folder can be made below it")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "a-file" / "boards"))
    job, said = RunStore(settings.adapters_dir).record(REQUEST), list[Mapping[str, Any]]()

    outcome = do_run(settings.model_copy(update={"trainer_report_to": ("tensorboard",)}), job, said.append)

    assert outcome is not None and outcome.status == "trained", outcome
    assert any("tensorboard gets nothing" in event.get("warning", "") for event in said)


@pytest.mark.parametrize(
    ("named", "reason"),
    [("wandb", "pip install wandb"), ("trakio", "trackio"), ("trackio,nothing", "RATCHET_TRAINER_REPORT_TO")],
)
def test_one_that_is_not_known_or_not_installed_is_named_at_the_start(named: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        TrainerSettings.read(trainer_report_to=named)
