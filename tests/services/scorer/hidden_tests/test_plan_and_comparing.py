"""What criteria may say, which files an answer is, and what equals what."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ratchet.service.errors import ScorerError
from services.scorer.hidden_tests.answer import NoFiles, files_of
from services.scorer.hidden_tests.comparing import fault, same
from services.scorer.hidden_tests.plan import Case, Plan, plan_of

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
        (criteria(cases=[]), "at least 1 item"),
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


PLAN = Plan.model_validate({"cases": [CASE], "files": {"data.txt": "the task's own"}})


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("def f(x): return x", {"solution.py": "def f(x): return x"}),
        ("Here:\n```python\ndef f(x): ...\n```\nDone.\n```\nmore\n```", {"solution.py": "def f(x): ...\n"}),
        ("```never closed\nx", {"solution.py": "```never closed\nx"}),
        ('{"files": {"a/b.py": "1", "solution.py": "2"}}', {"a/b.py": "1", "solution.py": "2"}),
        ('{"files": {"data.txt": "forged"}}', {}),
        ('{"files": 3}', {"solution.py": '{"files": 3}'}),
        ("{broken", {"solution.py": "{broken"}),
        ("", {"solution.py": ""}),
    ],
)
def test_the_files_of_an_answer(text: str, files: dict[str, str]) -> None:
    found = {path: content.decode() for path, content in files_of(text, PLAN).items()}

    assert found == {**files, "data.txt": "the task's own"}


@pytest.mark.parametrize("path", ["../out.py", "/etc/passwd", "a/../../b"])
def test_files_outside_are_none(path: str) -> None:
    with pytest.raises(NoFiles, match="no path"):
        files_of(json.dumps({"files": {path: ""}}), PLAN)


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
