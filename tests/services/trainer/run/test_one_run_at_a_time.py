"""Of one agent one run at a time, whoever asks, and an end that people can bring about."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from ratchet.runs.store import RunFolder, RunStore
from schemas.messages.training import AdapterTrained, TrainRequest
from services.trainer.settings import TrainerSettings
from services.trainer.train import do_run


def record_run(settings: TrainerSettings, run_id: str) -> RunFolder:
    return RunStore(settings.adapters_dir).record(TrainRequest(request_id=run_id, agent_id="small"))


def test_a_second_run_of_an_agent_waits_until_the_first_has_ended(settings: TrainerSettings) -> None:
    first, second = record_run(settings, "run-1"), record_run(settings, "run-2")
    meanwhile: list[AdapterTrained | None] = []

    def begin_the_second(said: Mapping[str, Any]) -> None:
        if not meanwhile:
            meanwhile.append(do_run(settings, second, lambda _: None))

    ended = do_run(settings, first, begin_the_second)
    after = do_run(settings, second, lambda _: None)

    assert meanwhile == [None] and second.attempts == 1
    assert ended is not None and after is not None
    assert (ended.adapter_version, after.adapter_version) == ("v1.0.1", "v1.0.2")


def test_a_run_that_is_cancelled_ends_at_its_next_step_and_publishes_nothing(settings: TrainerSettings) -> None:
    folder = record_run(settings, "run-1")
    stages: list[str] = []

    def cancel_in_training(said: Mapping[str, Any]) -> None:
        stages.append(said["stage"])
        if said.get("step") == 1:
            folder.cancel("operator:ann")

    ended = do_run(settings, folder, cancel_in_training)

    assert ended is not None and ended == folder.outcome
    assert (ended.status, ended.reason) == ("failed", "cancelled by operator:ann")
    begun = ["reading", "selected", "loading", "loading-model", "comparing", "training"]
    assert list(dict.fromkeys(stages)) == begun
    assert not (settings.adapters_dir / "small" / "v1.0.1").exists()


def test_the_work_that_is_done_is_told_in_tokens_and_ends_with_all_of_it(settings: TrainerSettings) -> None:
    told: list[Mapping[str, Any]] = []

    do_run(settings, record_run(settings, "run-1"), told.append)

    steps = [(said["step"], said["work_done"]) for said in told if "loss" in said]
    assert [step for step, _ in steps] == [1, 2, 3, 4, 5, 6]
    assert all(before < after for (_, before), (_, after) in itertools.pairwise(steps))
    assert steps[-1][1] == told[-1]["work"]
