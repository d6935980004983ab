"""`ratchet verify` on workspaces in four languages: the oracle earns 1, nothing earns 0, and no cheat is paid."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from schemas.messages.task import Task
from services.cli.app import app
from services.cli.verify.trial import notes
from tests.services.cli.verify.test_verify import verify
from tests.services.cli.verify.workspace_tasks import PLACES, RIGHT, SUITES, WRONG, patch, suite, task

pytestmark = pytest.mark.timeout(900)
TOOLS = {"python": "python3", "javascript": "node", "go": "go", "rust": "rustc"}
LANGUAGES = list(TOOLS)


def need(language: str) -> None:
    if shutil.which(TOOLS[language], path="/usr/local/bin:/usr/bin:/bin") is None:
        pytest.skip(f"no {TOOLS[language]} below /usr: sh infra/setup-toolchains.sh {language}")


def assert_sound(told: dict[str, Any], code: int, cheats: int) -> None:
    assert (told["faults"], code) == ([], 0)
    kinds = [one["kind"] for one in told["tried"]]
    assert kinds.count("cheat") >= cheats
    assert {one["score"] for one in told["tried"] if one["kind"] == "oracle"} == {1.0}
    assert {one["score"] for one in told["tried"] if one["kind"] in ("cheat", "no-op")} == {0.0}


@pytest.mark.parametrize("language", LANGUAGES)
def test_hidden_cases_on_a_workspace_pay_no_cheat(tmp_path: Path, language: str) -> None:
    need(language)
    mine = tmp_path / "mine.patch"
    mine.write_text(patch(language))

    code, told = verify(tmp_path, task(language, with_suite=False), str(mine))

    assert_sound(told, code, 12)
    assert [one["score"] for one in told["tried"] if one["kind"] == "answer"] == [1.0]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_hidden_suite_with_its_control_pays_no_cheat(tmp_path: Path, language: str) -> None:
    need(language)

    code, told = verify(tmp_path, task(language, with_cases=False))

    assert_sound(told, code, 12)


def test_a_suite_that_was_shown_is_found(tmp_path: Path) -> None:
    place, text, _ = SUITES["python"]
    shown = {**task("python", with_cases=False), "workspace": {"files": {**WRONG["python"], place: text}}}

    code, told = verify(tmp_path, shown)

    assert code == 1
    assert [fault for fault in told["faults"] if "can tell them from the control" in fault]


def test_a_control_that_is_right_is_found(tmp_path: Path) -> None:
    place, text, _ = SUITES["python"]

    code, told = verify(tmp_path, task("python", with_cases=False, suite=suite("python", control={place: text})))

    assert code == 1
    assert "also passes where what it expects is wrong" in told["faults"][0]


def test_a_case_that_the_workspace_passes_as_it_was_is_found(tmp_path: Path) -> None:
    always = {"command": ["python3", "main.py"], "stdin": "2 2", "expected": 4}

    code, told = verify(tmp_path, task("python", with_suite=False, cases=[always]))

    assert code == 1
    assert any(fault.startswith("the workspace as it was earns 1") for fault in told["faults"])


def test_a_case_that_keeps_earns_nothing(tmp_path: Path) -> None:
    always = {"command": ["python3", "main.py"], "stdin": "2 2", "expected": 4, "keeps": True}
    earning = {"command": ["python3", "main.py"], "stdin": "8 9", "expected": 72}

    code, told = verify(tmp_path, task("python", with_suite=False, cases=[always, earning]))

    assert_sound(told, code, 12)


def test_a_reference_that_is_no_patch_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "task.json"
    file.write_text(json.dumps({**task("python"), "reference": RIGHT["python"][PLACES["python"]]}))

    run = CliRunner().invoke(app, ["verify", str(file)])

    assert run.exit_code == 2


@pytest.mark.parametrize(("controls", "said"), [(1, "one control"), (3, "passes once in 16;"), (7, None)])
def test_few_controls_are_noted_with_what_they_let_through(controls: int, said: str | None) -> None:
    place, text, _ = SUITES["python"]
    several = suite("python", control=[{place: text}] * controls)
    found = notes(Task.model_validate({"task_id": "t", **task("python", with_cases=False, suite=several)}))

    assert len(found) == (said is not None)
    assert said is None or said in found[0]
