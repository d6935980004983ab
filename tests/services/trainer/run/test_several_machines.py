"""A run of two launchers, as on two machines, that meet over TCP: the adapter of one process, also after a kill."""

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

import psutil
import pytest
from safetensors.torch import load_file

from ratchet.runs.store import RunFolder, RunStore
from ratchet.service.errors import SettingsError
from ratchet.service.failpoint import STEP_BYTES
from schemas.messages.training import TrainRequest
from services.trainer.follower import Follower
from services.trainer.settings import TrainerSettings
from services.trainer.train import launch_command
from tests.private_broker import free_port
from tests.services.trainer.run.test_several_processes import KNOBS, environment_of
from tests.services.trainer.run.test_training_run import folder, train
from tests.waiting import wait_until

LONG_S = 240.0


@contextmanager
def machine(number: int, module: tuple[str, ...], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    here = environment | {"RATCHET_TRAINER_MACHINE_RANK": str(number)}
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
    settings: TrainerSettings, tmp_path: Path
) -> None:
    # given a run in one process, and machine 0 of two, which halts at its first checkpoint
    alone = train(settings, "alone", hyperparameters=KNOBS, seed=11)
    asked = TrainRequest(request_id="spread", agent_id="small", hyperparameters=KNOBS, seed=11)
    job = RunStore(settings.adapters_dir).folder("small", "spread")
    halt = tmp_path / "halt"
    halt.write_bytes(b"checkpointed".ljust(STEP_BYTES, b"\0"))
    environment = environment_of(settings) | {
        "RATCHET_TRAINER_MACHINES": "2",
        "RATCHET_TRAINER_MAIN_ADDRESS": f"127.0.0.1:{free_port()}",
        "RATCHET_TRAINER_CHECKPOINT_EVERY_S": "0",
    }
    by_request = ("services.trainer.train", "--request", asked.encode().decode())
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

    # then it went on from the checkpoint, and its steps and weights are those of one process but for rounding
    assert (job.path / "attempts").read_text() == "1 checkpoint-1"
    outcome = job.outcome
    assert outcome is not None and outcome.status == "trained"
    homes = [folder(settings, alone), folder(settings, outcome)]
    one, two = (json.loads((home / "training_report.json").read_text()) for home in homes)
    assert [report["plan"]["processes"] for report in (one, two)] == [1, 2]
    assert [step["loss"] for step in two["steps"]] == pytest.approx([step["loss"] for step in one["steps"]], abs=1e-5)
    mine, theirs = (load_file(home / "adapter_model.safetensors") for home in homes)
    assert mine.keys() == theirs.keys()
    assert max((mine[name] - theirs[name]).abs().max().item() for name in mine) < 1e-4


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
