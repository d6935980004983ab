"""The hidden verifier: whether an answer is exactly right, by rules of its own. Only the report asks it.

Nobody in the fleet has it: training, the gate and the experiments go by the graded scorer, `verifier:json`.
"""

from __future__ import annotations

import json
from typing import Any


def is_exact(answer: str, reference: str) -> bool:
    """The whole answer is one JSON object with the reference's names and values, and nothing besides.

    Numbers are compared by value, so that 12.5 is 12.50; texts by character; a name that comes twice is wrong.
    """
    try:
        given, wanted = _object(answer), _object(reference)
    except (ValueError, RecursionError):
        return False
    return given.keys() == wanted.keys() and all(_same(given[name], value) for name, value in wanted.items())


def _object(text: str) -> dict[str, Any]:
    found = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a name comes twice")
    return found


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON")


def _same(given: Any, wanted: Any) -> bool:
    if isinstance(wanted, str):
        return isinstance(given, str) and given == wanted
    return isinstance(given, int | float) and not isinstance(given, bool) and given == wanted
