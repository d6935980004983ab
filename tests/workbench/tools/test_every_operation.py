"""The 55 operations: each has a good, a bad and a hostile call in the tests, a schema and a description."""

from __future__ import annotations

from collections import Counter

import jsonschema
import pytest

from tests.workbench.tools import (
    test_code,
    test_database,
    test_docker,
    test_files,
    test_git,
    test_http,
    test_project_tests,
)
from workbench.tools.operation import Operation
from workbench.tools.toolbox import OPERATIONS

CASES = [
    case
    for module in (test_code, test_database, test_docker, test_files, test_git, test_http, test_project_tests)
    for case in module.CASES
]


def test_there_are_55() -> None:
    assert Counter(one.subject for one in OPERATIONS.values()) == {
        "files": 14,
        "git": 12,
        "tests": 5,
        "code": 3,
        "http": 6,
        "database": 9,
        "docker": 6,
    }


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_has_a_good_a_bad_and_a_hostile_call(name: str) -> None:
    assert {case.kind for case in CASES if case.operation == name} == {"good", "bad", "hostile"}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda one: one.name)
def test_each_says_what_it_takes(operation: Operation) -> None:
    jsonschema.Draft202012Validator.check_schema(operation.schema)
    validator = jsonschema.Draft202012Validator(operation.schema)

    assert 20 <= len(operation.description) <= 200
    assert operation.schema["additionalProperties"] is False
    assert operation.private <= operation.arguments.model_fields.keys()
    for case in CASES:
        if case.operation == operation.name and case.kind == "good":
            assert list(validator.iter_errors(dict(case.arguments))) == []
