"""A run of two processes, as on two GPUs: it takes the steps of one, and one of them writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from safetensors.torch import load_file

from ratchet.adapters.manifest import published_versions
from ratchet.runs.store import RunStore
from schemas.messages.training import TrainRequest
from services.trainer.settings import TrainerSettings
from services.trainer.train import launch_run
from tests.services.trainer.run.test_training_run import folder, train

KNOBS = {"epochs": 2, "batch": 24, "micro_batch_tokens": 120, "lora_rank": 4, "learning_rate": 0.003, "beta": 0.05}


def environment_of(settings: TrainerSettings) -> dict[str, str]:
    return os.environ | {
        "RATCHET_LOGS_DIR": str(settings.logs_dir),
        "RATCHET_ADAPTERS_DIR": str(settings.adapters_dir),
        "RATCHET_TRAINER_MODEL": settings.trainer_model,
        "RATCHET_TRAINER_DEVICE": "cpu",
    }


def ratchet_train(settings: TrainerSettings, processes: int) -> subprocess.CompletedProcess[str]:
    request = TrainRequest(request_id="by-hand", agent_id="small", seed=11, hyperparameters=KNOBS)
    return subprocess.run(
        [sys.executable, "-m", "services.trainer.train", "--request", request.encode()],
        env=environment_of(settings) | {"RATCHET_TRAINER_PROCESSES": str(processes)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.timeout(180)
def test_two_processes_take_the_steps_of_one_up_to_rounding(settings: TrainerSettings) -> None:
    # given a run in one process
    alone = train(settings, "alone", hyperparameters=KNOBS, seed=11)

    # when the same is done by two
    ended = ratchet_train(settings, processes=2)

    # then there is one adapter more, whose steps and weights are the same but for the order of additions
    assert ended.returncode == 0, ended.stderr
    assert published_versions(settings.adapters_dir, "small") == ["v1.0.1", "v1.0.2"]
    one = folder(settings, alone)
    two = one.with_name("v1.0.2")
    reports = [json.loads((home / "training_report.json").read_text()) for home in (one, two)]
    assert [report["plan"]["processes"] for report in reports] == [1, 2]
    assert [len(report["steps"]) for report in reports] == [6, 6]
    for first, second in zip(*(report["steps"] for report in reports), strict=True):
        assert second["loss"] == pytest.approx(first["loss"], abs=1e-5)
        assert second["reward"] == pytest.approx(first["reward"], abs=1e-6)
    weights = [load_file(home / "adapter_model.safetensors") for home in (one, two)]
    for name, values in weights[0].items():
        assert (values - weights[1][name]).abs().max().item() < 1e-4, name


def test_a_job_that_another_trainer_is_at_is_left_to_it(settings: TrainerSettings) -> None:
    job = RunStore(settings.adapters_dir).record(TrainRequest(request_id="taken", agent_id="small"))
    with job.claim():
        assert launch_run(settings.model_copy(update={"trainer_processes": 2}), job, sys.stdout) is None

    assert job.attempts == 0
