"""Compares a result with what was expected: in value and type, outside of what ran. Pure."""

from __future__ import annotations

from typing import Any

from services.scorer.hidden_tests.plan import Case
from services.scorer.matching.json_values import NoJson, read


def fault(case: Case, output: bytes) -> str | None:
    """None where the case is passed. It says what is wrong, and nothing of what was expected."""
    try:
        text = output.decode()
    except UnicodeDecodeError:
        return "its output is no UTF-8"
    if case.expected_text is not None:
        return None if text.rstrip() == case.expected_text.rstrip() else "wrong output"
    try:
        given = read(text.strip())
    except NoJson:
        return "its output is not one JSON value" if text.strip() else "no output"
    return None if same(given, case.expected, case.tolerance) else "wrong value"


def same(given: Any, expected: Any, tolerance: float = 0.0) -> bool:
    """Truth values are no numbers. A whole number will do where a float is expected, for half of the languages write
    3.0 so; a float never does where a whole number is expected."""
    match expected:
        case bool() | None:
            return given is expected
        case int():
            return type(given) is int and given == expected
        case float():
            return type(given) in (int, float) and _is_near(given, expected, tolerance)
        case str():
            return type(given) is str and given == expected
        case list():
            return (
                type(given) is list
                and len(given) == len(expected)
                and all(same(one, other, tolerance) for one, other in zip(given, expected, strict=True))
            )
        case dict():
            return (
                type(given) is dict
                and given.keys() == expected.keys()
                and all(same(given[key], expected[key], tolerance) for key in expected)
            )
    return False


def _is_near(given: int | float, expected: float, tolerance: float) -> bool:
    try:
        return abs(given - expected) <= tolerance
    except OverflowError:  # a whole number larger than any float
        return False
