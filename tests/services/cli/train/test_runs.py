"""Runs that are listed, looked on at and cancelled from a terminal that did not ask for them."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from ratchet.adapters.registry import RegistryStore
from ratchet.runs.progress import ProgressFile
from ratchet.runs.store import RunFolder, RunStore
from ratchet.service.errors import NotFound, TimedOut
from schemas.api.runs import RunProgress
from schemas.messages.base import Metadata
from schemas.messages.training import TrainRequest
from services.cli.train.view import (
    CANCEL_WAIT_S,
    TrainingsHere,
    TrainView,
    describe_run,
    describe_standing,
    explain_next_steps,
    explain_waiting,
    render_outcome,
    render_runs,
    subtract_age,
    time_left,
)
from tests.ratchet.adapters.making_adapters import NOON
from tests.ratchet.adapters.making_decisions import decided, to_canary, to_primary


def record_run(adapters: Path, run_id: str) -> RunFolder:
    about = Metadata(timestamp=NOON, source="operator")
    return RunStore(adapters).record(TrainRequest(request_id=run_id, agent_id="small", metadata=about))


def begun(folder: RunFolder) -> None:
    folder.begin("")
    seconds = iter((0.0, 10.0, 20.0))
    file = ProgressFile(folder.progress, lambda: datetime.now(UTC), seconds=lambda: next(seconds))
    for number in range(3):
        file.record({"stage": "training", "step": number, "steps": 10, "loss": 0.5})


def test_the_run_at_work_is_chosen_before_those_that_wait(tmp_path: Path) -> None:
    runs = TrainingsHere(tmp_path, ("small",))
    with pytest.raises(NotFound, match="ratchet train --list"):
        runs.choose(None, None)
    first, second = record_run(tmp_path, "run-1"), record_run(tmp_path, "run-2")

    assert runs.choose(None, None).path == second.path
    with first.claim():
        assert runs.choose(None, "small").path == first.path
        assert describe_run(first).startswith("run run-1 of agent small, asked for by operator, is at work (pid ")
    assert runs.choose("run-1", None).path == first.path
    with pytest.raises(NotFound, match="run-9"):
        runs.choose("run-9", None)


def test_a_list_says_how_each_run_stands(tmp_path: Path) -> None:
    going, left, ended, waiting = (record_run(tmp_path, f"run-{number}") for number in range(1, 5))
    begun(going)
    begun(left)
    ended.cancel("operator:ann")
    said = {}

    with going.claim():
        for view, folder in RunStore(tmp_path).views("small"):
            said[view.run_id] = describe_standing(view, at_work=folder.is_taken)
        assert RunStore(tmp_path).views("coder") == []
    listed = RunStore(tmp_path).views()

    assert said == {
        "run-1": "training step 2 of 10, 80 s left",
        "run-2": "left at step 2 of 10: a trainer of the fleet takes it up",
        "run-3": "cancelled by operator:ann",
        "run-4": "not at work: a trainer of the fleet takes it up",
    }
    assert waiting.outcome is None
    assert render_runs([(view, False) for view, _ in listed]).row_count == 4


def test_a_trained_run_says_how_right_it_was_about_its_time(tmp_path: Path) -> None:
    run = record_run(tmp_path, "run-1").run.view.model_copy(update={"state": "trained", "adapter_version": "v1.0.1"})
    known = run.model_copy(update={"metrics": {"told_after_ten_steps_s": 61.2, "took_after_ten_steps_s": 58.4}})

    assert describe_standing(run, at_work=False) == "v1.0.1"
    assert describe_standing(known, at_work=False) == "v1.0.1; after ten steps 61 s left by its word, 58 s in truth"


def test_who_looks_on_sees_each_step_and_the_end(tmp_path: Path) -> None:
    folder = record_run(tmp_path, "run-1")
    begun(folder)
    screen, looks = io.StringIO(), []

    def wait(_: float) -> None:
        looks.append(1)
        if len(looks) == 3:
            folder.fail("the disk is full", "trainer")

    with folder.claim(), TrainView(Console(file=screen, width=100)) as view:
        outcome = TrainingsHere(tmp_path, ("small",), wait).watch(folder, view)

    assert outcome["reason"] == "the disk is full"
    assert screen.getvalue() == "step 2 of 10  loss +0.5000  80 s left\n"


def test_looking_on_at_what_is_not_ended_in_time_says_who_has_it(tmp_path: Path) -> None:
    folder = record_run(tmp_path, "run-1")
    runs = TrainingsHere(tmp_path, ("small",), lambda _: None)

    with folder.claim(), TrainView(Console(file=io.StringIO())) as view, pytest.raises(TimedOut, match=r"pid \d+"):
        runs.watch(folder, view, at_most_s=CANCEL_WAIT_S)


def test_a_record_that_is_gone_is_no_wait_without_end(tmp_path: Path) -> None:
    folder = record_run(tmp_path, "run-1")
    runs = TrainingsHere(tmp_path, ("small",), lambda _: folder.remove())

    with TrainView(Console(file=io.StringIO())) as view, pytest.raises(NotFound, match="removed"):
        runs.watch(folder, view)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(None, ""), (4.4, "4 s left"), (89.0, "89 s left"), (1500.0, "25 min left"), (5700.0, "1 h 35 min left")],
)
def test_time_left_as_people_say_it(seconds: float | None, said: str) -> None:
    assert time_left(seconds) == said


def test_what_was_left_a_while_ago_is_less_now() -> None:
    progress = RunProgress(stage="training", step=1, steps=9, seconds_left=60.0, at=NOON)

    assert subtract_age(progress, 20.0).seconds_left == 40.0
    assert subtract_age(progress, 90.0).seconds_left == 0.0


def test_what_is_on_its_way_is_said_before_a_training_and_what_follows_after_it(tmp_path: Path) -> None:
    store = RegistryStore(tmp_path)
    agent = decided(store, *to_primary("v1.0.1")).agent("small")
    nothing, busy = explain_waiting(agent, None), decided(store, *to_canary("v1.0.2", "v1.0.1")).agent("small")
    outcome = {"agent_id": "small", "adapter_version": "v1.0.3", "parent_version": "v1.0.1", "status": "trained"}

    said, follows = explain_waiting(busy, None), explain_next_steps(outcome, 20)

    assert nothing is None
    assert said is not None and "v1.0.2 (canary) is on its way" in said and "starts from v1.0.1" in said
    assert (
        "the gate" in follows
        and "at least 20 of each" in follows
        and "ratchet experiment show --agent small" in follows
    )
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(render_outcome(outcome, dry_run=False))
    assert "`ratchet adapters show v1.0.3 --agent small` tells more" in console.export_text()
