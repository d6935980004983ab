"""The tool task: its text is enough to set it up, its parts never meet, and what its tools do decides who is right."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demos.toy.recipe import TOOL_USER
from demos.toy.tools.task import TOOLS, WORKSPACES, ToolTask, Workspace, is_done, outcome, task_of, tool_task
from demos.toy.tools.teacher import demonstration
from services.scorer.matching.json_grade import grade

NUMBERS = st.integers(0, WORKSPACES - 1)


@given(NUMBERS, st.booleans())
def test_a_task_s_text_is_all_it_takes_to_set_it_up(number: int, blanked: bool) -> None:
    task = ToolTask(number, blanked=blanked)
    again = task_of(task.input)
    assert (again, again.files, again.question) == (task, task.files, task.question)


@pytest.mark.parametrize("text", ["sort: gbaec", "workspace 7: a+b>x", "workspace 7", ""])
def test_another_text_is_no_task(text: str) -> None:
    with pytest.raises(ValueError, match="no task of a workspace"):
        task_of(text)


@given(NUMBERS)
def test_a_workspace_has_three_pointers_that_lead_to_numbers_of_two_digits(number: int) -> None:
    task = ToolTask(number)
    pointers = [held for held in task.files.values() if held.startswith("@")]
    assert len(task.files) == 10 and len(pointers) == 3
    assert all(10 <= int(task.files[held[1:]]) <= 49 for held in pointers)
    assert len(set(task.operands)) == 2 and task.target not in task.files


def test_no_workspace_is_both_trained_on_and_held_out() -> None:
    rng = random.Random(1)
    trained = {tool_task(rng, "train").workspace for _ in range(500)}
    measured = {tool_task(rng, "held_out").workspace for _ in range(500)}
    assert not trained & measured
    assert not any(ToolTask(number).held_out for number in trained)
    assert replace(ToolTask(next(iter(measured))), blanked=True).held_out


def test_the_tools_do_what_they_say_and_bring_a_question_mark_where_they_can_t() -> None:
    task = ToolTask(5)
    workspace = Workspace(task)
    assert workspace.use("read_file", '{"path": "a"}') == task.files["a"]
    assert workspace.use("add", '{"a": 17, "b": "25"}') == "42"
    assert workspace.use("write_file", '{"path": "x", "content": "42"}') == "ok"
    assert (workspace.changed_files, workspace.files["x"]) == ({"x": "42"}, "42")
    for tool, arguments in [
        ("read_file", '{"path": "q"}'),
        ("read_file", "[]"),
        ("add", '{"a": 1}'),
        ("add", '{"a": "@f", "b": 1}'),
        ("run", "{}"),
        ("add", "{"),
    ]:
        assert workspace.use(tool, arguments) == "?"
    assert workspace.changed_files == {"x": "42"}


def test_blanked_tools_bring_nothing_whatever_they_do() -> None:
    workspace = Workspace(ToolTask(5, blanked=True))
    used = [workspace.use("read_file", '{"path": "a"}'), workspace.use("write_file", '{"path": "x", "content": "42"}')]
    assert (used, workspace.changed_files) == (["?", "?"], {"x": "42"})


def test_every_tool_that_is_offered_is_there() -> None:
    workspace, asked = Workspace(ToolTask(5)), {"string": "a", "integer": 1}
    for tool in TOOLS:
        parameters = tool["function"]["parameters"]["properties"]
        given_ = {name: asked[schema["type"]] for name, schema in parameters.items()}
        assert workspace.use(tool["function"]["name"], json.dumps(given_)) != "?"


@given(NUMBERS)
def test_the_hidden_verifier_and_the_scorer_s_reference_agree_on_what_is_right(number: int) -> None:
    task = ToolTask(number)
    assert is_done(task, task.answer)
    assert grade(task.answer, task.answer, None).score == 1.0


def wrong_outcomes(task: ToolTask) -> list[str]:
    other, total = next(name for name in "uvwxyz" if name != task.target), task.sum
    return [
        outcome({}, total),
        outcome({other: total}, total),
        outcome({task.target: "99"}, "99"),
        outcome({task.target: total}, "99"),
        outcome({task.target: total}, f"{total} "),
        outcome({task.target: total, other: total}, total),
        outcome({task.target: total, task.operands[0]: "00"}, total),
        total,
        "",
        "{",
        '{"files": 3, "hold": [], "said": "1"}',
        f'{{"files": ["{task.target}"], "hold": [], "said": "{total}"}}',
    ]


@given(NUMBERS)
def test_whatever_is_wrong_is_not_done_and_has_no_full_marks(number: int) -> None:
    task = ToolTask(number)
    for answer in wrong_outcomes(task):
        assert not is_done(task, answer)
        if "99 " not in answer and f"{task.sum} " not in answer:
            assert grade(answer, task.answer, None).score < 1.0


def test_the_teacher_is_careless_in_its_choices_alone() -> None:
    """A third of its demonstrations do the task, before the model that learns from them makes mistakes of its own."""
    rng = random.Random(2)
    tasks = [tool_task(rng, "train") for _ in range(2000)]
    right = sum(demonstration(task, TOOL_USER.care, rng).endswith(f"{task.sum}<|end|>") for task in tasks)
    careful = replace(TOOL_USER.care, reads=1.0, follows=1.0, adds=1.0, right_file=1.0)
    assert 0.3 < right / len(tasks) < 0.55
    assert all(demonstration(task, careful, rng).endswith(f">{task.sum}<|end|>") for task in tasks)
