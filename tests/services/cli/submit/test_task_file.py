"""Tasks from lines a person wrote."""

from __future__ import annotations

import json

import pytest

from services.cli.submit import Overruled, new_task, read_tasks
from services.cli.terminal import UsageError


def test_a_line_needs_only_its_input() -> None:
    (task,) = read_tasks(['{"input": "sort: ba"}'], {})

    assert task.input == "sort: ba"
    assert task.task_id.startswith("task-")
    assert task.metadata.timestamp is not None


def test_a_string_is_the_input() -> None:
    assert [task.input for task in read_tasks(['"one"', "", '"two"'], {})] == ["one", "two"]


def test_what_a_line_says_goes_before_the_options() -> None:
    lines = ['{"input": "a", "samples": 3, "task_id": "mine"}', '{"input": "b"}']

    first, second = read_tasks(lines, {"samples": 5, "agent_id": "small", "criteria": None})

    assert (first.samples, first.agent_id, first.task_id) == (3, "small", "mine")
    assert second.samples == 5


def test_options_fill_what_a_line_leaves_out_and_what_it_says_otherwise_is_told() -> None:
    lines = [
        '{"input": "a", "samples": 3, "select": "best"}',
        '{"input": "b", "samples": 8, "select": null}',
        '"c"',
        '{"input": "d", "samples": 2}',
    ]
    options = {"samples": 8, "select": "first-passing", "pass_score": 0.5, "agent_id": None}
    told = Overruled()

    tasks = list(read_tasks(lines, options, told))

    assert [task.samples for task in tasks] == [3, 8, 8, 2]
    assert [(task.select, task.pass_score) for task in tasks] == [("best", None), *[("first-passing", 0.5)] * 3]
    assert list(told) == [
        "note: 2 lines name samples themselves, and that counts (lines 1, 4); --samples holds for the others",
        "note: line 1 names select itself, and that counts; --select holds for the others",
    ]


def test_a_field_that_a_task_does_not_have_is_told_and_passed_over() -> None:
    told = Overruled()
    lines = [*(json.dumps({"input": "a", "selct": "majority"}) for _ in range(7)), '{"input": "b", "zzz": 1}', '"c"']

    tasks = list(read_tasks(lines, {}, told))

    assert len(tasks) == 9
    assert list(told) == [
        "warning: a task has no field 'selct' (lines 1, 2, 3, 4, 5, …): is 'select' meant?",
        "warning: a task has no field 'zzz' (line 8)",
    ]


def test_chat_messages_are_an_input_too() -> None:
    (task,) = read_tasks([json.dumps({"input": [{"role": "user", "content": "hello"}]})], {})

    assert not isinstance(task.input, str)
    assert task.input[0].content == "hello"


@pytest.mark.parametrize("line", ["not json", "[1]", "7", '{"no": "input"}', '{"input": "x", "samples": 0}'])
def test_a_bad_line_is_named_by_its_number(line: str) -> None:
    with pytest.raises(UsageError, match="line 2"):
        list(read_tasks(['"fine"', line], {}))


def test_an_option_that_can_t_be_is_named() -> None:
    with pytest.raises(UsageError, match="priority"):
        new_task({"input": "x", "priority": 12})
