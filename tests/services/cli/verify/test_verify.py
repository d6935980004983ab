"""`ratchet verify`: sound cases are told from cases that can be fooled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from schemas.messages.task import Task
from services.cli.app import app
from services.cli.terminal import UsageError
from services.cli.verify.trial import Trial, Tried, answers_to
from workbench.sandbox import bubblewrap

ORACLE = "def add(a, b): return a + b\n"


@pytest.fixture
def needs_a_sandbox() -> None:
    assert bubblewrap.missing_programs() == [], "sh infra/setup-debian.sh installs it"


def task(*expected: Any, reference: str | None = ORACLE, **of_tests: Any) -> dict[str, Any]:
    cases = [
        {"function": "add", "arguments": [number, one - number], "expected": one} if type(one) is int else one
        for number, one in enumerate(expected)
    ]
    found: dict[str, Any] = {"input": "Write add.", "criteria": json.dumps({"tests": {"cases": cases, **of_tests}})}
    return found if reference is None else {**found, "reference": reference}


def verify(tmp_path: Path, given: dict[str, Any], *more: str) -> tuple[int, Any]:
    file = tmp_path / "task.json"
    file.write_text(json.dumps(given))
    run = CliRunner().invoke(app, ["verify", str(file), *more, "--json"])
    return run.exit_code, json.loads(run.stdout)


def test_cases_that_no_constant_hits_are_sound(tmp_path: Path, needs_a_sandbox: None) -> None:
    answer = tmp_path / "answer.py"
    answer.write_text("def add(a, b): return 17")

    code, told = verify(tmp_path, task(17, 23), str(answer), "--scorer", "0.9*tests + 0.1*tokens:4000")

    assert (code, told["sound"], told["faults"]) == (0, True, [])
    assert told["left_out"] == ["tokens:4000"]
    kinds = [one["kind"] for one in told["tried"]]
    assert kinds.count("cheat") >= 12
    assert [one["score"] for one in told["tried"] if one["kind"] == "oracle"] == [1.0]
    assert [one["score"] for one in told["tried"] if one["kind"] == "answer"] == [0.5]
    assert {one["score"] for one in told["tried"] if one["kind"] in ("cheat", "no-op")} == {0.0}


def test_a_case_that_true_passes_is_found(tmp_path: Path, needs_a_sandbox: None) -> None:
    guessable = {"function": "add", "arguments": [1, 2], "expected": True}

    code, told = verify(tmp_path, task(guessable, reference="def add(a, b): return True"))

    assert code == 1
    assert not told["sound"]
    assert any(fault.startswith("is true where a number is asked for earns 1") for fault in told["faults"])


def test_a_case_that_nothing_passes_is_found(tmp_path: Path, needs_a_sandbox: None) -> None:
    code, told = verify(
        tmp_path, task({"function": "add", "arguments": [], "expected": None}, reference="def add(): return None")
    )

    assert code == 1
    assert any("functions that return None earns 1" in fault for fault in told["faults"])


def test_a_reference_that_fails_its_own_cases_is_found(tmp_path: Path, needs_a_sandbox: None) -> None:
    code, told = verify(tmp_path, task(17, 23, reference="def add(a, b): return 17"))

    assert code == 1
    assert told["faults"] == ["the reference earns 0.5, not 1: 1 of 2 cases; case 2: wrong value"]


def test_a_task_without_a_reference_is_told(tmp_path: Path, needs_a_sandbox: None) -> None:
    code, told = verify(tmp_path, task(17, reference=None))

    assert code == 1
    assert told["faults"] == ["the task has no reference: nobody knows whether its cases can be passed at all"]


@pytest.mark.parametrize("criteria", [None, "be nice", "{}", '{"tests": 3}', '{"tests": {"cases": [3]}}'])
def test_a_task_without_cases_is_refused(criteria: str | None) -> None:
    with pytest.raises(UsageError, match="no hidden cases"):
        answers_to(Task(task_id="t", input="i", criteria=criteria), None)


def test_a_file_that_is_no_task_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"samples": 1000}')

    run = CliRunner().invoke(app, ["verify", str(tmp_path / "bad.json")])

    assert run.exit_code == 2


def test_what_was_not_scored_is_a_fault_and_no_proof() -> None:
    trial = Trial([Tried("oracle", "the reference", 1.0, None), Tried("cheat", "exits", None, "no sandbox")])

    assert trial.faults == ["exits was not scored: no sandbox"]
