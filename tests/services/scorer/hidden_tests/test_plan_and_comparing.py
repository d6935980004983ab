"""What criteria may say, which files an answer is, and what equals what."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ratchet.service.errors import ScorerError
from services.scorer.hidden_tests.answer import NoFiles, files_in, patch_in
from services.scorer.hidden_tests.plan import Case, Plan, plan_of
from services.scorer.hidden_tests.running import fault, judged_files, same
from workbench.sandbox.job import TreeFile

CASE = {"function": "f", "arguments": [1], "expected": 2}


def criteria(*cases: dict[str, Any], **more: Any) -> str:
    return json.dumps({"tests": {"cases": list(cases or (CASE,)), **more}})


def test_criteria_are_a_plan() -> None:
    plan = plan_of(criteria(CASE, {"command": ["./program"], "stdin": "x", "expected_text": "y"}, language="go"))

    assert (plan.language, plan.place) == ("go", "solution.go")
    assert [plan.case_name(number) for number in range(2)] == ["case 1", "case 2"]
    assert plan.limits.as_limits().wall_s == 10


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (None, "no hidden cases"),
        ("be nice", "no hidden cases"),
        ("{", "can't be read"),
        ("{}", "tests: Field required"),
        ('{"type": "object"}', "tests: Field required"),
        (criteria(cases=[]), "nothing is earned"),
        (criteria({**CASE, "keeps": True}), "nothing is earned"),
        (criteria(suite={"command": ["t", "{test}"], "tests": ["a"], "files": {"t": ""}}), "need a control"),
        (criteria(suite={"command": ["t"], "keeps": ["a"]}), "no word of the suite's command"),
        (criteria(suite={"command": ["{test}"]}), "names no tests"),
        (criteria(suite={"command": ["{test}"], "tests": ["a"], "control": {"t": ""}}), "no file of the suite"),
        (criteria(restore=["../x"]), "no path of a file"),
        (criteria({"function": "f"}), "`expected` or `expected_text`"),
        (criteria({"expected": 1}), "a function or a command"),
        (criteria({"function": "f", "command": ["x"], "expected": 1}), "a function or a command"),
        (criteria({"function": "f(); os", "expected": 1}), "no name of a function"),
        (criteria({"command": [], "expected": 1}), "the command is empty"),
        (criteria(language="cobol"), "language"),
        (criteria(language="rust"), "can't be called by its name"),
        (criteria(file="../x"), "no path of a file"),
        (criteria(files={"/etc/passwd": ""}), "no path of a file"),
        (criteria(limits={"wall_s": -1}), "wall_s"),
        (criteria(limits={"wall_s": 1e9}), "wall_s"),
        (criteria(expects=1), "Extra inputs"),
    ],
)
def test_criteria_that_are_none_are_told_why(text: str | None, fault: str) -> None:
    with pytest.raises(ScorerError, match=r".") as raised:
        plan_of(text)
    assert fault in str(raised.value)


PLAN = Plan.model_validate({"cases": [CASE]})


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("def f(x): return x", {"solution.py": "def f(x): return x"}),
        ("Here:\n```python\ndef f(x): ...\n```\nDone.\n```\nmore\n```", {"solution.py": "def f(x): ...\n"}),
        ("```never closed\nx", {"solution.py": "```never closed\nx"}),
        ('{"files": {"a/b.py": "1", "solution.py": "2"}}', {"a/b.py": "1", "solution.py": "2"}),
        ('{"files": {"./a//b": "1"}}', {"a/b": "1"}),
        ("Here:\n~~~js\nf()\n```\n~~~\n", {"solution.py": "f()\n```\n"}),
        ("1. Here:\n   ```\n   if x:\n       y\n   ```\n", {"solution.py": "if x:\n    y\n"}),
        ("- ask\n  ```sh\n  ls\n  ```\n```\nx\n```", {"solution.py": "x\n"}),
        (
            'def f():\n    """\n    ```\n    f()\n    ```\n    """',
            {"solution.py": 'def f():\n    """\n    ```\n    f()\n    ```\n    """'},
        ),
        ('So:\n```json\n{"files": {"a": "1"}}\n```\n', {"a": "1"}),
        ('{"files": 3}', {"solution.py": '{"files": 3}'}),
        ("{broken", {"solution.py": "{broken"}),
        ("", {"solution.py": ""}),
    ],
)
def test_the_files_of_an_answer(text: str, files: dict[str, str]) -> None:
    assert {path: content.decode() for path, content in files_in(text, PLAN.place).items()} == files


def test_without_a_place_a_text_is_no_file() -> None:
    assert files_in("I mended it.", None) == {}


def test_what_an_answer_brings_gives_way_to_what_is_restored_and_to_the_tasks_own() -> None:
    plan = Plan.model_validate({"cases": [CASE], "files": {"data.txt": "the task's own"}, "restore": ["tests/", "cfg"]})
    before = {"tests/a": TreeFile(b"was"), "cfg": TreeFile(b"was"), "src": TreeFile(b"was")}
    after = {name: TreeFile(b"forged") for name in ("tests/a", "tests/new", "cfg/x", "src", "data.txt/below")}

    found = judged_files(plan, before, after)

    assert found == {
        "tests/a": TreeFile(b"was"),
        "cfg": TreeFile(b"was"),
        "src": TreeFile(b"forged"),
        "data.txt": TreeFile(b"the task's own"),
    }


@pytest.mark.parametrize(
    ("text", "patch"),
    [
        ("Here:\n```diff\n--- a/x\n+++ b/x\n```\nDone.", "--- a/x\n+++ b/x\n"),
        ("diff --git a/x b/x\n", "diff --git a/x b/x\n"),
        ("\n--- a/x\n", "\n--- a/x\n"),
        ("I mended it:\n\n--- a/x\n+++ b/x\n", "--- a/x\n+++ b/x\n"),
        ("```udiff\n--- a/x\n+++ b/x\n```", "--- a/x\n+++ b/x\n"),
        ("```\n--- a/x\n+++ b/x\n```", "--- a/x\n+++ b/x\n"),
        ("So:\r\n```diff\r\n--- a/x\r\n+++ b/x\r\n```\r\n", "--- a/x\n+++ b/x\n"),
        ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\r\n+b\r\n", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\r\n+b\r\n"),
        ("```python\n--- a\n```", None),
        ("I mended it.", None),
    ],
)
def test_a_patch_in_a_text(text: str, patch: str | None) -> None:
    assert patch_in(text) == patch


@pytest.mark.parametrize("path", ["../out.py", "/etc/passwd", "a/../../b", "\ud800"])
def test_files_outside_are_none(path: str) -> None:
    with pytest.raises(NoFiles, match=r"no path|surrogates"):
        files_in(json.dumps({"files": {path: ""}}), PLAN.place)


@pytest.mark.parametrize(
    ("given", "expected", "equal"),
    [
        (3, 3, True),
        (3.0, 3, False),
        (3, 3.0, True),
        (True, 1, False),
        (1, True, False),
        (True, True, True),
        (False, None, False),
        (None, None, True),
        (0, None, False),
        ("3", 3, False),
        ("a", "a", True),
        ([1, 2], [1, 2], True),
        ([1, 2], [2, 1], False),
        ([1], [1, 2], False),
        ([True], [1], False),
        ({"a": 1}, {"a": 1}, True),
        ({"a": True}, {"a": 1}, False),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({}, [], False),
        (0.1 + 0.2, 0.3, False),
        (10**350, 3.0, False),
        (True, 1.0, False),
    ],
)
def test_equal_is_in_value_and_type(given: Any, expected: Any, equal: bool) -> None:
    assert same(given, expected) is equal


def test_a_tolerance_is_for_floats_alone() -> None:
    assert same(0.1 + 0.2, 0.3, 1e-9)
    assert not same(4, 3, 5.0)


@pytest.mark.parametrize(
    ("output", "wrong"),
    [
        (b"2", None),
        (b" 2\n", None),
        (b"", "no output"),
        (b"2 2", "its output is not one JSON value"),
        (b"2\n2", "its output is not one JSON value"),
        (b"NaN", "its output is not one JSON value"),
        (b"3", "wrong value"),
        (b"2.0", "wrong value"),
        (b"\xff", "its output is no UTF-8"),
        (b"[" * 100_000, "its output is not one JSON value"),
    ],
)
def test_what_an_output_is_worth(output: bytes, wrong: str | None) -> None:
    assert fault(Case.model_validate(CASE), output) == wrong


def test_text_is_compared_but_for_white_space_at_its_end() -> None:
    case = Case.model_validate({"command": ["x"], "expected_text": "a b\n"})

    assert fault(case, b"a b") is None
    assert fault(case, b" a b") == "wrong output"
