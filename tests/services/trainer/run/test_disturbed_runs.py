"""A run that is killed, that several processes share, or both: the adapter of one process that nothing disturbed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file

from ratchet.adapters.folder import adapter_sha256
from ratchet.adapters.manifest import published_versions
from ratchet.runs.store import RunFolder, RunStore
from ratchet.service.errors import SettingsError
from ratchet.service.failpoint import STEP_BYTES
from schemas.messages.training import TrainRequest
from services.trainer.follower import Follower
from services.trainer.run.checkpoints import MARKER, mark_whole, newest_checkpoint, remove_broken
from services.trainer.settings import TrainerSettings
from services.trainer.train import launch_command, launch_run
from tests.private_broker import free_port
from tests.services.trainer.conftest import settings_of
from tests.services.trainer.forked_runs import ForkedRuns
from tests.services.trainer.run.test_training_run import folder, train
from tests.services.trainer.tiny_policy import loaded
from tests.waiting import wait_until

LONG_S = 240.0
STEPS = ("window-fixed", "checkpointed:1", "checkpointed:2", "trained", "adapter-renamed", "outcome-written")
KNOBS = {"epochs": 2, "batch": 24, "micro_batch_tokens": 120, "lora_rank": 4, "learning_rate": 0.003, "beta": 0.05}
"""Six steps of several micro-batches, and a frozen reference."""
ASKED = TrainRequest(request_id="disturbed", agent_id="small", hyperparameters=KNOBS, seed=11)
ACCELERATE = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config: {fsdp_version: 2}
num_machines: 1
num_processes: 2
mixed_precision: 'no'
"""


@pytest.fixture(scope="module")
def calm(base_model: Path, logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The adapter of one process that nothing disturbed."""
    settings = settings_of(base_model, logs, tmp_path_factory.mktemp("calm"))
    return folder(settings, train(settings, "calm", hyperparameters=KNOBS, seed=11))


def report_of(adapter: Path) -> Any:
    return json.loads((adapter / "training_report.json").read_text())


def environment_of(settings: TrainerSettings) -> dict[str, str]:
    """Settings of a process that writes a checkpoint after each step."""
    return {
        "RATCHET_LOGS_DIR": str(settings.logs_dir),
        "RATCHET_ADAPTERS_DIR": str(settings.adapters_dir),
        "RATCHET_TRAINER_MODEL": settings.trainer_model,
        "RATCHET_TRAINER_DEVICE": "cpu",
        "RATCHET_TRAINER_CHECKPOINT_EVERY_S": "0",
    }


def assert_same_but_for_rounding(settings: TrainerSettings, job: RunFolder, calm: Path, *, spread: bool) -> Path:
    """The adapter of the job, made by two processes, is `calm`, and so are its steps."""
    outcome = job.outcome
    assert outcome is not None and outcome.status == "trained"
    adapter = folder(settings, outcome)
    one, two = report_of(calm), report_of(adapter)
    assert [(report["plan"]["processes"], report["plan"]["spread"]) for report in (one, two)] == [
        (1, False),
        (2, spread),
    ]
    assert [step["loss"] for step in two["steps"]] == pytest.approx([step["loss"] for step in one["steps"]], abs=1e-5)
    mine, theirs = (load_file(home / "adapter_model.safetensors") for home in (calm, adapter))
    assert mine.keys() == theirs.keys()
    assert max((mine[name] - theirs[name]).abs().max().item() for name in mine) < 1e-4
    return adapter


def test_killed_at_each_step_it_gives_the_same_adapter_once(
    settings: TrainerSettings, calm: Path, forks: ForkedRuns
) -> None:
    # when a run is killed at each step and taken up again
    job = RunStore(settings.adapters_dir).record(ASKED)
    ended = [forks.attempt(job, environment_of(settings), step) for step in (*STEPS, "")]

    # then it was killed each time, ended well, and there is one adapter of it, equal to the byte
    assert ended == ["killed"] * len(STEPS) + ["ended"]
    outcome = job.outcome
    assert outcome is not None
    assert published_versions(settings.adapters_dir, "small") == ["v1.0.1"]
    assert outcome.adapter_sha256 == adapter_sha256(calm) == adapter_sha256(folder(settings, outcome))

    # and its report tells every step once, as the other's does
    assert report_of(folder(settings, outcome))["steps"] == report_of(calm)["steps"]
    assert not job.checkpoints.exists()


@pytest.mark.timeout(300)
def test_killed_and_taken_up_under_fsdp_it_is_the_adapter_of_one_process(
    settings: TrainerSettings, calm: Path, forks: ForkedRuns, tmp_path: Path
) -> None:
    # given a file as `accelerate config` writes it: two processes that hold half of the base model each, here over gloo
    told = tmp_path / "accelerate.yaml"
    told.write_text(ACCELERATE)

    # when a run is killed at its third step and taken up again
    job = RunStore(settings.adapters_dir).record(ASKED)
    ended = [forks.attempt(job, environment_of(settings), step, told) for step in ("checkpointed:3", "")]

    # then it went on from where it was killed, and is the same
    assert ended == ["killed", "ended"]
    assert (job.path / "attempts").read_text() == "1 checkpoint-3"
    adapter = assert_same_but_for_rounding(settings, job, calm, spread=True)

    # and it is served like any other
    tokens = torch.arange(40).view(2, 20)
    base = Path(settings.trainer_model)
    with torch.no_grad():
        mine, theirs = (loaded(base, home)(input_ids=tokens).logits.log_softmax(-1) for home in (calm, adapter))
    assert (mine - theirs).abs().max().item() < 1e-3


@contextmanager
def machine(number: int, module: tuple[str, ...], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    here = os.environ | environment | {"RATCHET_TRAINER_MACHINE_RANK": str(number)}
    started = subprocess.Popen([sys.executable, "-m", *module], env=here, stdout=subprocess.DEVNULL)
    try:
        yield started
    finally:
        started.terminate()
        started.wait()


def children(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def holder_of(job: RunFolder) -> int:
    return int(job.holder.split()[1])


def is_halted(job: RunFolder) -> bool:
    return job.is_taken and psutil.Process(holder_of(job)).status() == psutil.STATUS_STOPPED


@pytest.mark.timeout(600)
def test_a_run_over_two_machines_survives_a_kill_and_is_the_adapter_of_one_process(
    settings: TrainerSettings, calm: Path, tmp_path: Path
) -> None:
    # given machine 0 of two, which halts at its first checkpoint
    job = RunStore(settings.adapters_dir).folder(ASKED.agent_id, ASKED.request_id)
    halt = tmp_path / "halt"
    halt.write_bytes(b"checkpointed".ljust(STEP_BYTES, b"\0"))
    environment = environment_of(settings) | {
        "RATCHET_TRAINER_MACHINES": "2",
        "RATCHET_TRAINER_MAIN_ADDRESS": f"127.0.0.1:{free_port()}",
    }
    by_request = ("services.trainer.train", "--request", ASKED.encode().decode())
    with machine(1, ("tests.services.trainer.following_machine",), environment) as follower:
        # when the processes of machine 1 are killed there
        with machine(0, by_request, environment | {"RATCHET_FAILPOINT": f"@{halt}"}) as first:
            wait_until(lambda: is_halted(job), "the first checkpoint", LONG_S)
            for process in children(follower):
                process.kill()
            os.kill(holder_of(job), signal.SIGCONT)

            # then machine 0 fails, too, and the run has no outcome
            assert first.wait(LONG_S) == 1
            assert job.outcome is None
        before = job.meeting

        # and when machine 0 is started again, the other joins it
        with machine(0, by_request, environment) as first:
            assert first.wait(LONG_S) == 0
        assert before and job.meeting and job.meeting != before

    # then it went on from the checkpoint, and is the same
    assert (job.path / "attempts").read_text() == "1 checkpoint-1"
    assert_same_but_for_rounding(settings, job, calm, spread=False)


def test_the_launcher_is_told_where_the_machines_meet(settings: TrainerSettings) -> None:
    third = settings.model_copy(
        update={
            "trainer_processes": 8,
            "trainer_machines": 4,
            "trainer_machine_rank": 2,
            "trainer_main_address": "trainer-0.trainer-nodes:29500",
            "trainer_fsdp": True,
        }
    )

    told = " ".join(launch_command(third, RunStore(settings.adapters_dir).folder("small", "one")))

    assert "--use_fsdp --fsdp_version 2 --num_machines 4 --num_processes 32 --machine_rank 2" in told
    assert "--main_process_ip trainer-0.trainer-nodes --main_process_port 29500" in told


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"RATCHET_TRAINER_MACHINES": "2"}, "needs RATCHET_TRAINER_MAIN_ADDRESS"),
        ({"RATCHET_TRAINER_MACHINE_RANK": "1"}, "RATCHET_TRAINER_MACHINES is too small"),
    ],
)
def test_machines_that_could_not_meet_are_refused(
    environment: dict[str, str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(SettingsError, match=sentence):
        TrainerSettings.read()


async def test_a_follower_without_a_run_of_its_machine_waits(settings: TrainerSettings) -> None:
    # given a run that another machine 0 began
    job = RunStore(settings.adapters_dir).record(TrainRequest(request_id="theirs", agent_id="small"))
    job.meeting = "elsewhere:29500 1"
    follower = Follower(settings.model_copy(update={"trainer_main_address": "here:29500"}), poll_every_s=0.001)

    # when the follower looks several times
    await follower.start()
    for _ in range(5):
        await asyncio.sleep(0.002)  # real time: its turns have no event

    # then it joins nothing, and is well
    assert follower.trouble() is None
    assert (job.path / "checkpoints").exists() is False
    await follower.stop()


def test_a_job_that_another_trainer_is_at_is_left_to_it(settings: TrainerSettings) -> None:
    job = RunStore(settings.adapters_dir).record(TrainRequest(request_id="taken", agent_id="small"))
    with job.claim():
        assert launch_run(settings.model_copy(update={"trainer_processes": 2}), job, sys.stdout) is None

    assert job.attempts == 0


def test_a_half_written_checkpoint_is_not_used(tmp_path: Path) -> None:
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
