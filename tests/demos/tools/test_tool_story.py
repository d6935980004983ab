"""The tools demo's report: done or not by the hidden verifier, before and after and blanked; and every promise."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from demos.books import Account, Measured
from demos.demo import Sizes
from demos.performance import time_left
from demos.story import Story
from demos.story_view import render_story
from demos.tools import in_sandboxes
from demos.tools.demo import TRAINING, Conversations, Figures, ToolsDemo
from demos.toy.tools.task import ToolTask, task_of
from ratchet.experiments.gain import Estimate, Gain
from schemas.messages.task import Task
from services.cli.fleet.own_fleet import FleetPlace
from services.orchestrator.settings import OrchestratorSettings
from services.runner.settings import RunnerSettings
from services.trainer.algorithms.hyperparameters import GrpoHyperparameters
from services.trainer.settings import TrainerSettings
from tests.demos.test_story import PROMOTION, TURN, rows

DEMO = ToolsDemo(
    sizes=Sizes(tasks=12, samples=2, turns=3, groups=64, no_turn_after=1.0, timeout=1.0),
    seed=3,
    run="x",
    namespace="ours.",
)
TASKS = DEMO.held_out()
UNDONE = '{"files": [], "hold": [], "said": ""}'
HIGH = Estimate(0.9, 0.8, 1.0, 12)
REPORT: dict[str, Any] = {
    "data": {
        "conversations": {
            "rollouts": 40,
            "segments": 41,
            "segments_per_rollout": 1.025,
            "breaks": {"aborted": 1},
            "sampled_tokens": 900,
            "trained_tokens": 800,
            "without_advantage_tokens": 100,
        }
    },
    "parent_match": {"gap": 3e-8},
    "steps": [{"step": 1, "gap": 5e-7}, {"step": 2, "gap": 0.2}],
}


def measured(right: int) -> Measured[ToolTask]:
    tasks = DEMO.name_questions("stage", TASKS)
    return Measured(tasks, {}, rows(tasks, right, UNDONE))


def figures() -> Figures:
    stages = {"before": measured(0), "after": measured(12), "blanked": measured(0)}
    return replace(
        DEMO.figures(stages, (), Path()),
        blanked=Estimate(0.01, 0.0, 0.02, 12),
        conversations=(Conversations.from_report("v1.0.1", REPORT),),
    )


def story(**changes: Any) -> Story:
    return Story(
        primary="v1.0.1",
        figures=replace(figures(), **changes),
        turns=(TURN,),
        decisions=(PROMOTION,),
        books=Account(500, 0, 0, 0),
        dead_letters=0,
        seconds=250.0,
        page="report.html",
    )


def test_a_task_is_one_observation_however_many_rollouts_it_has() -> None:
    found = figures().gain
    assert [found.before.mean, found.after.mean, found.before.tasks] == [0.5, 1.0, 12]
    assert story().faults == ()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"books": Account(10, 1, 0, 0)}, "1 were lost"),
        ({"dead_letters": 4}, "4 dead letters"),
        ({"turns": (replace(TURN, state="inconclusive"),)}, "no trained version was promoted"),
        ({"gain": Gain(HIGH, HIGH, Estimate(0.0, -0.1, 0.1, 12))}, "does not confirm a gain"),
        (
            {"gain": Gain(Estimate(0.3, 0.2, 0.4, 12), Estimate(0.79, 0.7, 0.9, 12), Estimate(0.5, 0.4, 0.6, 12))},
            "0.79 of the held-out tasks are done, less than 0.8",
        ),
        ({"blanked": Estimate(0.03, 0.0, 0.1, 12)}, "0.03 are done with tools that bring nothing"),
    ],
)
def test_each_broken_promise_is_a_sentence(change: dict[str, object], fault: str) -> None:
    own = Figures.__dataclass_fields__.keys() & change.keys()
    told = story(**change) if own else replace(story(), **change)  # type: ignore[arg-type]
    assert len(told.faults) == 1
    assert fault in told.faults[0]


@pytest.mark.parametrize(
    ("report", "fault"),
    [
        ({"steps": [{"step": 1, "gap": 2e-4}]}, "began 2.0e-04 nats a token from what was logged"),
        ({"parent_match": {"gap": 2e-4}}, "began 2.0e-04 nats a token from what was logged"),
        ({"data": {"conversations": REPORT["data"]["conversations"] | {"trained_tokens": 700}}}, "of 900 tokens"),
    ],
)
def test_a_training_on_other_tokens_than_were_sampled_is_a_fault(report: dict[str, Any], fault: str) -> None:
    told = story(conversations=(Conversations.from_report("v1.0.1", REPORT | report),))
    (found,) = told.faults
    assert fault in found


def test_the_tables_and_the_json_have_the_figures_and_the_verdict() -> None:
    console = Console(record=True, width=200, file=io.StringIO())
    console.print(render_story(story()))
    text = console.export_text()
    assert "All as promised, in 250 s." in text
    assert all(shown in text for shown in ("0.500", "1.000", "5.0e-07", "1 aborted", TASKS[0].question))
    told = json.loads(json.dumps(story().as_dict()))
    assert (told["sound"], told["held_out"]["after"]["mean"], told["blanked"]["mean"]) == (True, 1.0, 0.01)
    assert told["conversations"][0]["trained_tokens"] == 800
    assert [example["done_after"] for example in told["examples"]] == [True] * 4


def test_held_out_tasks_go_out_without_their_answers_to_a_named_version_and_to_who_records() -> None:
    for task in DEMO.measuring_tasks(DEMO.name_questions("before", TASKS), "v1.0.0", 2):
        assert (task.reference, task.adapter_version, task.work_to) == (None, "v1.0.0", "ours.reply.tool-agent.x")
        assert task_of(str(task.input)).held_out


def test_in_sandboxes_tasks_bring_their_files_and_held_out_ones_neither_what_is_right_nor_how_it_is_checked() -> None:
    demo = replace(DEMO, sandboxed=True)
    (taught,) = first(demo.users(), 1)
    held_out = demo.measuring_tasks(demo.name_questions("before", TASKS), "v1.0.0", 2)
    for task in [taught, *demo.golden_tasks(), *held_out]:
        assert task.workspace is not None and task.work_to is None
        assert task.workspace.files == task_of(str(task.input)).files
    assert taught.reference == task_of(str(taught.input)).sum
    assert {(task.reference, task.criteria) for task in held_out} == {(None, None)}
    assert seconds_left(demo) > seconds_left(DEMO)


def seconds_left(demo: ToolsDemo) -> float:
    left = time_left(demo)
    assert left is not None
    return left.seconds()


def first(stream: object, count: int) -> list[Task]:
    return [next(stream) for _ in range(count)]  # type: ignore[call-overload]


def test_what_teaches_what_proves_and_what_the_gate_asks_never_meet_what_measures() -> None:
    asked = [*first(DEMO.users(), 100), *first(DEMO.judging(), 100), *DEMO.golden_tasks()]
    spaces = [task_of(str(task.input)) for task in asked]
    assert not any(space.held_out for space in spaces)
    assert len({space.workspace for space in spaces}) == len(asked)
    assert all(task.reference == space.answer for task, space in zip(asked, spaces, strict=True))
    assert [task.blanked for task in DEMO.also_measured(TASKS)["blanked"]] == [True] * 12
    other = replace(DEMO, seed=4)
    assert {t.workspace for t in other.held_out()}.isdisjoint(t.workspace for t in TASKS)


def test_its_settings_are_ones_that_the_services_take() -> None:
    given = {
        name.removeprefix("RATCHET_").lower(): value for name, value in DEMO.settings(FleetPlace(Path("demo"))).items()
    }
    GrpoHyperparameters.model_validate(TRAINING)
    known = OrchestratorSettings.model_fields.keys() | TrainerSettings.model_fields.keys() | {"agent_seed"}
    assert given.keys() <= known
    sandboxed = in_sandboxes.settings(Path("demo"))
    assert {name.removeprefix("RATCHET_").lower() for name in sandboxed} <= RunnerSettings.model_fields.keys()
