"""The suite that comes with Ratchet: its size, its cases, and that its hidden cases can't be fooled."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from schemas.messages.task import Task
from services.cli.eval.suites import COMMANDS, suite_tasks, suites
from services.cli.eval.task_set import named_set
from services.cli.terminal import UsageError
from services.cli.verify.cheats import SAID
from services.cli.verify.trial import try_out
from tests.acceptance.ratchet_command import ForkedRatchet

TASKS = list(suite_tasks("coding"))
TOOLS = {"python": "python3", "javascript": "node", "go": "go", "rust": "rustc"}


def test_there_are_100_tasks_and_25_in_each_language_at_three_levels() -> None:
    assert suites() == ["coding"]
    assert len(TASKS) >= 100
    by_language = Counter(one["language"] for one in TASKS)
    assert by_language.keys() == COMMANDS.keys() and min(by_language.values()) >= 25
    by_level = Counter((one["language"], one["level"]) for one in TASKS)
    assert {level for _, level in by_level} == {"easy", "medium", "hard"} and min(by_level.values()) >= 8


@pytest.mark.parametrize("task", [one for one in TASKS if one["language"] == "python"], ids=lambda one: one["task_id"])
def test_a_problem_has_several_cases_and_none_that_a_cheat_prints(task: dict[str, str]) -> None:
    expected = [case["expected_text"] for case in json.loads(task["criteria"])["tests"]["cases"]]

    assert len(expected) >= 5 and len(set(expected)) >= 4
    assert {text.strip() for text in SAID.values()}.isdisjoint(expected)
    assert max(Counter(expected).values()) < len(expected)


@pytest.mark.parametrize("task", [one for one in TASKS if one["language"] == "python"], ids=lambda one: one["task_id"])
def test_what_several_inputs_have_as_output_earns_nothing_by_itself(task: dict[str, str]) -> None:
    cases = json.loads(task["criteria"])["tests"]["cases"]
    often = [text for text, count in Counter(one["expected_text"] for one in cases).items() if count > 1]

    for constant in often:
        kept = all(one["expected_text"] == constant for one in cases if one.get("keeps"))
        earned = sum(one["expected_text"] == constant for one in cases if not one.get("keeps"))
        assert not (kept and earned), f"{constant!r} earns {earned} of the cases"


@pytest.mark.parametrize(
    ("problem", "constant"),
    [
        ("garden-path", "no way"),
        ("garden-path", "10 steps"),
        ("kitchen-order", "goes in circles"),
        ("store-room", "refused 0"),
        ("store-room", "refused 1"),
    ],
)
def test_a_constant_answer_is_scored_0(problem: str, constant: str) -> None:
    (task,) = [one for one in TASKS if one["task_id"] == f"coding/{problem}/python"]

    trial = try_out(Task.model_validate(task), f"print({constant!r})\n", "tests")

    assert trial.faults == []
    assert [one.score for one in trial.tried if one.kind == "answer"] == [0.0]


def test_a_named_set_has_a_language_and_a_level_for_each_task_and_asks_each_once() -> None:
    read = named_set("coding")

    assert (read.name, read.twice, len(read.tasks)) == ("coding", 0, len(TASKS))
    assert {(one.language, one.family) for one in read.tasks} == {(one, one) for one in COMMANDS}
    assert None not in {one.level for one in read.tasks}
    assert all(one.task.reference and one.task.reference not in str(one.task.input) for one in read.tasks)


def test_a_file_is_read_and_what_is_neither_file_nor_suite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read"):
        named_set("codings")
    (tmp_path / "coding").write_text('{"input": "sort: ba"}\n')

    assert [one.task.input for one in named_set(str(tmp_path / "coding")).tasks] == ["sort: ba"]


@pytest.mark.parametrize("language", ["python", "javascript"])
def test_a_solution_earns_1_and_nothing_and_each_cheat_0(language: str) -> None:
    if not any(Path(folder, TOOLS[language]).exists() for folder in ("/usr/bin", "/usr/local/bin")):
        pytest.skip(f"no {TOOLS[language]} here for {language}: sh infra/setup-toolchains.sh")
    (task,) = [one for one in TASKS if one["task_id"] == f"coding/odd-socks/{language}"]

    trial = try_out(Task.model_validate(task), None, "tests")

    assert trial.faults == []
    assert sum(one.kind == "cheat" for one in trial.tried) >= 7


def test_a_suite_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    refused = ForkedRatchet(tmp_path)("verify", "--set", "coding/no-such-problem")

    assert refused.code == 2
    assert "there are coding" in " ".join(refused.err.split())
