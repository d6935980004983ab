"""What programs that come with Ratchet do themselves, around the agent that they start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.programs.shipped.aider import MOST_BYTES, choose_files, files_of_aider, forget, make_repository


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, content in {"shop/price.py": b"price", "tests/test_price.py": b"test", "logo.png": b"\xff\xfe"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    yield tmp_path


FILES = ["logo.png", "shop/price.py", "tests/test_price.py"]


@pytest.mark.parametrize(
    ("task", "files"),
    [
        ("Mend shop/price.py.", ["shop/price.py"]),
        ("`test_price.py` fails: mend (shop/price.py).", ["shop/price.py", "tests/test_price.py"]),
        ("Something of price is wrong.", ["shop/price.py", "tests/test_price.py"]),
    ],
)
def test_aider_is_given_the_files_that_the_task_names_else_all_that_are_text(
    task: str, files: list[str], workspace: Path
) -> None:
    assert choose_files(FILES, task) == files


def test_a_large_workspace_is_left_to_its_own_map(workspace: Path) -> None:
    (workspace / "large.txt").write_text("x" * MOST_BYTES)

    assert choose_files([*FILES, "large.txt"], "Something is wrong.") == []
    assert choose_files([*FILES, "large.txt"], "See large.txt") == ["large.txt"]


def test_what_aider_keeps_is_removed_and_the_projects_settings_for_it_stay(workspace: Path) -> None:
    (workspace / ".aider.conf.yml").write_text("map-tokens: 0")
    before = files_of_aider()
    (workspace / ".aider.tags.cache.v4").mkdir()
    (workspace / ".aider.model.settings.yml").write_text("")

    forget(before)

    assert [path.name for path in workspace.glob(".aider*")] == [".aider.conf.yml"]


def test_a_workspace_becomes_a_repository_once(workspace: Path) -> None:
    assert make_repository() == FILES
    (workspace / "new.py").write_text("new")
    assert make_repository() == FILES
