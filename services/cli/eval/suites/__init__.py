"""Evaluation sets that come with Ratchet: `ratchet eval --set coding`.

A problem is one TOML file: its level, its statement, its hidden cases (what a program reads, and what it writes) and
a solution in each language. `keeps` are cases that earn nothing, and without which nothing is earned: those whose
output a program could print without reading. Each problem is one task in each of these languages, with the same
statement and cases.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NAMES = {"python": "Python", "javascript": "JavaScript", "go": "Go", "rust": "Rust"}
COMMANDS = {
    "python": ["python3", "solution.py"],
    "javascript": ["node", "solution.js"],
    "go": ["./program"],
    "rust": ["./program"],
}
ASKED = "Write a whole program in {language} that reads standard input and writes standard output. {statement}"


def suites() -> list[str]:
    return sorted(path.name for path in HERE.iterdir() if any(path.glob("*.toml")))


def suite_tasks(name: str) -> Iterator[dict[str, Any]]:
    """Yield a suite's tasks, by problem and language, as lines of a set; `reference` is for `ratchet verify`."""
    for path in sorted((HERE / name).glob("*.toml")):
        problem = tomllib.loads(path.read_text(encoding="utf-8"))
        for language, solution in problem["solutions"].items():
            cases = [_case(language, *one) for one in problem["cases"]]
            cases += [_case(language, *one) | {"keeps": True} for one in problem.get("keeps", ())]
            yield {
                "task_id": f"{name}/{path.stem}/{language}",
                "input": ASKED.format(language=NAMES[language], statement=problem["statement"]),
                "reference": solution,
                "criteria": json.dumps({"tests": {"language": language, "cases": cases}}),
                "family": language,
                "language": language,
                "level": problem["level"],
            }


def _case(language: str, given: str, expected: str) -> dict[str, Any]:
    return {"command": COMMANDS[language], "stdin": given, "expected_text": expected}
