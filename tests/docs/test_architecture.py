"""CONTRIBUTING.md and docs/architecture.md: where to change what, and the walk of one task through the files."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import PurePosixPath

import pytest

from tests.docs.reading import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()

_PLACE = re.compile(r"`((?:[\w.-]+/)*[\w.-]+(?:\.\w+|/))`(?: \((`[^)]*`)\))?")


def rows(heading: str, page: str = PAGE) -> list[tuple[str, str]]:
    """The first two cells of each row of the table in a section."""
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    return [(first.strip(), rest.strip()) for first, rest, *_ in lines[2:]]


def places(cell: str) -> list[tuple[str, tuple[str, ...]]]:
    """Paths, each with the names that stand in brackets after it."""
    return [(path, tuple(re.findall(r"`([^`]+)`", names))) for path, names in _PLACE.findall(cell) if "*" not in path]


TEN = rows("Ten usual changes", CONTRIBUTING)
CHANGES = [*TEN, *rows("Where to change what")]
WALK = rows("One task, file by file")
ROLLOUT = rows("One rollout, file by file")


def test_the_table_has_the_ten_changes() -> None:
    wanted = (
        "scorer",
        "backoff",
        "field of Task that is logged",
        "promotion rule",
        "training algorithm",
        "column of the page's task list",
        "command",
        "rank limit",
        "engine",
        "choice of the answer",
    )

    assert [change for change in wanted if not any(change in title for title, _ in TEN)] == []
    assert len(TEN) == len(wanted)


@pytest.mark.parametrize(("change", "where"), CHANGES, ids=[change for change, _ in CHANGES])
def test_what_is_to_be_changed_is_where_the_table_says(change: str, where: str) -> None:
    found = places(where)
    full = [(path, names) for path, names in found if "/" in path or path == "pyproject.toml"]
    missing = [path for path, _ in full if not (ROOT / path).exists()]
    missing += [f"{path}: {name}" for path, names in full for name in names if not _names(path, name)]

    assert full
    assert missing == []


def test_the_walk_follows_every_message_from_the_queue_to_the_log() -> None:
    assert [message for message, _ in WALK] == ["Task", "Work", "Response", "Reward", "Result"]


@pytest.mark.parametrize(("message", "files"), WALK, ids=[message for message, _ in WALK])
def test_no_folder_is_entered_twice_for_the_same_message(message: str, files: str) -> None:
    walked = [path for path, _ in places(files)]
    folders = [folder for folder, _ in groupby(str(PurePosixPath(path).parent) for path in walked)]

    assert [path for path in walked if not (ROOT / path).is_file()] == []
    assert len(folders) > 1
    assert len(folders) == len(set(folders))


def _names(path: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", (ROOT / path).read_text()) is not None
