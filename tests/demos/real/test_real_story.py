"""The real demo's report: right or wrong by the hidden verifier, by family, before and after; and every promise."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from demos.books import Account, Measured
from demos.demo import Sizes
from demos.real.demo import TEMPERATURE, TRAINING, Figures, RealDemo, settings
from demos.real.page import picture, result_page
from demos.real.tasks import RealTask, distinct_tasks
from demos.story import Story
from demos.story_view import render_story
from ratchet.experiments.gain import Estimate, Gain
from services.orchestrator.settings import OrchestratorSettings
from services.trainer.algorithms.hyperparameters import GrpoHyperparameters
from services.trainer.settings import TrainerSettings
from tests.demos.test_story import PROMOTION, TURN, rows

TASKS = distinct_tasks("held_out", 3, 12)
DEMO = RealDemo(sizes=Sizes(tasks=12, samples=2, turns=1, groups=8, no_turn_after=1.0, timeout=1.0), seed=3)
MODEL = "A <model>"


def measured(right: int) -> Measured[RealTask]:
    tasks = DEMO.name_questions("stage", TASKS)
    return Measured(tasks, {}, rows(tasks, right, "<b>no"))


def figures() -> Figures:
    return DEMO.figures({"before": measured(0), "after": measured(12)}, (), Path())


def story() -> Story:
    return Story(
        primary="v1.0.1",
        figures=figures(),
        turns=(TURN,),
        decisions=(PROMOTION,),
        books=Account(500, 0, 0, 0),
        dead_letters=0,
        seconds=900.0,
        page="result.html",
    )


def test_a_task_is_one_observation_and_families_are_told_apart() -> None:
    found = figures().gains

    assert [found["all"].before.mean, found["all"].after.mean, found["all"].before.tasks] == [0.5, 1.0, 12]
    assert [found[name].before.tasks for name in ("order", "date")] == [6, 6]
    assert story().faults == ()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"books": Account(10, 1, 0, 0)}, "1 were lost"),
        ({"dead_letters": 4}, "4 dead letters"),
        ({"turns": (replace(TURN, state="inconclusive"),)}, "no trained version was promoted"),
        (
            {"all": Gain(*[Estimate(0.8, 0.7, 0.9, 12)] * 2, Estimate(0.0, -0.1, 0.1, 12))},
            "does not confirm a gain",
        ),
        (
            {"all": Gain(Estimate(0.2, 0.1, 0.3, 12), Estimate(0.7, 0.6, 0.8, 12), Estimate(0.5, 0.4, 0.6, 12))},
            "0.70 of the held-out answers are exactly right, less than 0.75",
        ),
    ],
)
def test_each_broken_promise_is_a_sentence(change: dict[str, object], fault: str) -> None:
    if "all" in change:
        change = {"figures": replace(figures(), gains=change)}
    told = replace(story(), **change)  # type: ignore[arg-type]

    assert len(told.faults) == 1
    assert fault in told.faults[0]


def test_examples_are_the_first_tasks_whatever_became_of_them() -> None:
    examples = figures().examples

    assert [example.question.family for example in examples] == ["order"] * 4 + ["date"] * 4
    assert [example.label for example in examples[:4]] == [t.text for t in TASKS if t.family == "order"][:4]
    assert {example.right for example in examples} == {(False, True)}


def test_the_tables_have_the_figures_and_the_verdict() -> None:
    console = Console(record=True, width=200, file=io.StringIO())
    console.print(render_story(story()))
    text = console.export_text()

    assert "0.500" in text
    assert "1.000" in text
    assert "All as promised, in 15 min." in text


def test_the_page_is_one_document_in_which_no_text_can_act() -> None:
    page = result_page("<svg>", MODEL, story())

    assert "<b>no" not in page
    assert "&lt;b&gt;no" in page
    assert "A &lt;model&gt;" in page
    assert "<script" not in page
    assert "default-src 'none'" in page


def test_the_picture_is_well_formed_and_has_a_bar_for_each_mean() -> None:
    root = ElementTree.fromstring(picture(MODEL, figures().gains, story(), 3))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]

    assert texts.count("1.00") == 3
    assert texts.count("0.50") == 3
    assert any("12 tasks" in (text or "") for text in texts)


def test_held_out_tasks_go_out_without_their_answers_to_a_named_version() -> None:
    tasks = DEMO.name_questions("before", TASKS)
    asked = DEMO.measuring_tasks(tasks, "v1.0.0", 2)

    assert [task.reference for task in asked] == [None] * 12
    assert {task.adapter_version for task in asked} == {"v1.0.0"}
    assert not any(
        task.answer in message.model_dump_json() for task, message in zip(tasks.values(), asked, strict=True)
    )


def test_users_tasks_carry_what_the_graded_scorer_needs() -> None:
    users, judging = DEMO.users(), DEMO.judging()

    assert judging is not None
    asked = [next(users), next(judging), *DEMO.golden_tasks()]

    assert all(task.reference and task.criteria and task.max_tokens for task in asked)
    assert len({task.task_id for task in asked}) == len(asked)


def test_the_settings_are_settings_of_the_services() -> None:
    chosen = settings(seed=3)
    values = {name.removeprefix("RATCHET_").lower(): value for name, value in chosen.items()}

    orchestrator = {name: values[name] for name in values if name in OrchestratorSettings.model_fields}
    trainer = {name: values[name] for name in values if name in TrainerSettings.model_fields}
    assert OrchestratorSettings.model_validate(orchestrator).temperature == TEMPERATURE
    assert GrpoHyperparameters.read({}, dict(TRAINING)).learning_rate
    assert set(trainer) == {"trainer_hyperparameters", "demonstrations"}
    assert len(orchestrator.keys() | trainer.keys()) + 1 == len(chosen)  # one is the agent's


def test_with_references_the_trainer_learns_as_in_any_fleet() -> None:
    assert settings(3).keys() - settings(3, references=True).keys() == {
        "RATCHET_TRAINER_HYPERPARAMETERS",
        "RATCHET_DEMONSTRATIONS",
    }


def test_structured_answers_are_held_to_the_schema_that_they_are_scored_by() -> None:
    (task, *_) = replace(DEMO, structured=True).golden_tasks()

    assert task.format is not None and task.format.json_schema == json.loads(task.criteria or "")
    assert all(one.format is None for one in DEMO.golden_tasks())


def test_structured_answers_that_are_not_as_their_schema_has_them_are_a_fault() -> None:
    demo = replace(DEMO, structured=True)
    right, wrong = (demo.figures({"before": measured(12), "after": measured(n)}, (), Path()) for n in (12, 6))

    assert right.valid == 1.0
    assert wrong.valid == 0.875
    assert "0.875 of the answers that were not cut" in list(wrong.faults())[-1]
