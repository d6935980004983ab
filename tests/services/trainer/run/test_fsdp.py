"""Two processes that hold half of the base model each (FSDP, here over gloo): one adapter, as by one process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from ratchet.runs.store import RunFolder, RunStore
from schemas.messages.training import TrainRequest
from services.trainer.settings import TrainerSettings
from tests.services.trainer.run.test_several_processes import KNOBS, environment_of
from tests.services.trainer.run.test_training_run import folder, train
from tests.services.trainer.tiny_policy import loaded

ACCELERATE = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config: {fsdp_version: 2}
num_machines: 1
num_processes: 2
mixed_precision: 'no'
"""


def killed_under_fsdp(settings: TrainerSettings, job: RunFolder, step: str) -> list[str]:
    """How it ended: killed at the step, and taken up again."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.services.trainer.spread_runs",
            job.path,
            str(settings.trainer_accelerate_config),
            step,
        ],
        env=environment_of(settings) | {"RATCHET_TRAINER_CHECKPOINT_EVERY_S": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.timeout(300)
def test_killed_and_taken_up_under_fsdp_it_is_the_adapter_of_one_process(
    settings: TrainerSettings, tmp_path: Path
) -> None:
    # given a run in one process, and a file as `accelerate config` writes it
    alone = train(settings, "alone", hyperparameters=KNOBS, seed=11)
    told = tmp_path / "accelerate.yaml"
    told.write_text(ACCELERATE)
    settings = settings.model_copy(update={"trainer_accelerate_config": str(told)})

    # when the same is done under FSDP, killed at its third step and taken up again
    asked = TrainRequest(request_id="spread", agent_id="small", hyperparameters=KNOBS, seed=11)
    job = RunStore(settings.adapters_dir).record(asked)
    ended = killed_under_fsdp(settings, job, "checkpointed:3")

    # then it went on from where it was killed
    assert ended == ["killed", "ended"]
    assert (job.path / "attempts").read_text() == "1 checkpoint-3"

    # and its steps and its weights are those of one process but for rounding
    outcome = job.outcome
    assert outcome is not None and outcome.status == "trained"
    homes = [folder(settings, alone), folder(settings, outcome)]
    one, two = (json.loads((home / "training_report.json").read_text()) for home in homes)
    assert [(report["plan"]["processes"], report["plan"]["spread"]) for report in (one, two)] == [(1, False), (2, True)]
    assert [step["loss"] for step in two["steps"]] == pytest.approx([step["loss"] for step in one["steps"]], abs=1e-5)
    mine, theirs = (load_file(home / "adapter_model.safetensors") for home in homes)
    assert mine.keys() == theirs.keys()
    assert max((mine[name] - theirs[name]).abs().max().item() for name in mine) < 1e-4

    # and it is served like any other
    tokens = torch.arange(40).view(2, 20)
    base = Path(settings.trainer_model)
    with torch.no_grad():
        mine, theirs = (loaded(base, home)(input_ids=tokens).logits.log_softmax(-1) for home in homes)
    assert (mine - theirs).abs().max().item() < 1e-3
