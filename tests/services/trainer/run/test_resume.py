"""A run that was killed at each step ends with the very bytes of one that never was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ratchet.adapters.folder import adapter_sha256
from ratchet.adapters.manifest import published_versions
from ratchet.runs.store import RunFolder, RunStore
from schemas.messages.training import AdapterTrained, TrainRequest
from services.trainer.settings import TrainerSettings
from tests.services.trainer.run.test_training_run import folder, train

STEPS = (
    "window-fixed",
    "checkpointed:1",
    "checkpointed:2",
    "trained",
    "adapter-renamed",
    "outcome-written",
)
KNOBS = {
    **{"epochs": 2, "batch": 24, "micro_batch_tokens": 120},
    **{"beta": 0.05, "lora_rank": 4, "learning_rate": 0.003},
}
"""Six steps of several micro-batches, and a frozen reference."""


def killed_at_each_step(settings: TrainerSettings, job: RunFolder, steps: Sequence[str] = STEPS) -> list[str]:
    environment = {
        "RATCHET_LOGS_DIR": str(settings.logs_dir),
        "RATCHET_ADAPTERS_DIR": str(settings.adapters_dir),
        "RATCHET_TRAINER_MODEL": settings.trainer_model,
        "RATCHET_TRAINER_DEVICE": "cpu",
        "RATCHET_TRAINER_CHECKPOINT_EVERY_S": "0",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.services.trainer.killed_runs", str(job.path), *steps],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def often_killed() -> TrainRequest:
    return TrainRequest(request_id="often-killed", agent_id="small", hyperparameters=KNOBS, seed=11)


def test_killed_at_each_step_it_gives_the_same_adapter_once(
    settings: TrainerSettings, often_killed: TrainRequest
) -> None:
    # given a run that nothing disturbed
    calm = train(settings, "calm", hyperparameters=KNOBS, seed=11)

    # when another is killed at each step and taken up again
    job = RunStore(settings.adapters_dir).record(often_killed)
    ended = killed_at_each_step(settings, job)

    # then it was killed each time, ended well, and there is one adapter of it, equal to the byte
    assert ended == ["killed"] * len(STEPS) + ["trained"]
    outcome: AdapterTrained | None = job.outcome
    assert outcome is not None
    assert published_versions(settings.adapters_dir, "small") == ["v1.0.1", "v1.0.2"]
    assert outcome.adapter_sha256 == calm.adapter_sha256 == adapter_sha256(folder(settings, outcome))

    # and its report tells every step once, as the other's does
    curves = [
        json.loads((folder(settings, one) / "training_report.json").read_text())["steps"] for one in (calm, outcome)
    ]
    assert curves[0] == curves[1]
    assert not job.checkpoints.exists()


def test_a_half_written_checkpoint_is_not_used(tmp_path: Path) -> None:
    from services.trainer.run.checkpoints import MARKER, mark_whole, newest_checkpoint, remove_broken

    for number in (9, 10, 11):
        (tmp_path / f"checkpoint-{number}").mkdir()
        (tmp_path / f"checkpoint-{number}" / "weights").write_text("w")
    mark_whole(tmp_path / "checkpoint-9")
    mark_whole(tmp_path / "checkpoint-10")

    remove_broken(tmp_path)

    newest = newest_checkpoint(tmp_path)
    assert newest is not None and newest.name == "checkpoint-10"
    assert (newest / MARKER).exists()
    assert not (tmp_path / "checkpoint-11").exists()
