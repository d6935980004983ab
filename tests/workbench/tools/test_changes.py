"""What a call changed in a folder, put into another: the two are then alike."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.tools.changes import changes_between, look_at, put

Change = Callable[[Path], object]


def begin(folder: Path) -> Path:
    (folder / "src" / "empty").mkdir(parents=True)
    (folder / "src" / "a.txt").write_text("a\n")
    (folder / "b.bin").write_bytes(bytes(range(256)))
    (folder / "link").symlink_to("b.bin")
    return folder


def state(folder: Path) -> dict[str, object]:
    def of(path: Path) -> object:
        if path.is_symlink():
            return str(path.readlink())
        return "folder" if path.is_dir() else (path.read_bytes(), path.stat().st_mode)

    return {str(path.relative_to(folder)): of(path) for path in folder.rglob("*")}


def replaced(folder: Path) -> None:
    (folder / "link").unlink()
    (folder / "link").mkdir()
    shutil.rmtree(folder / "src")
    (folder / "src").write_text("a file now")


CHANGES: dict[str, Change] = {
    "nothing": lambda folder: None,
    "written": lambda folder: (folder / "src" / "a.txt").write_text("ä\n"),
    "made": lambda folder: (folder / "new").mkdir() or (folder / "new" / "x").write_text(""),
    "removed": lambda folder: shutil.rmtree(folder / "src"),
    "mode": lambda folder: (folder / "b.bin").chmod(0o755),
    "linked": lambda folder: (folder / "other").symlink_to("/nowhere"),
    "moved": lambda folder: (folder / "src").rename(folder / "lib"),
    "emptied": lambda folder: (folder / "src" / "empty").rmdir(),
    "replaced": replaced,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_put_into_a_folder_that_was_the_same(change: Change, tmp_path: Path) -> None:
    there, here = begin(tmp_path / "there"), begin(tmp_path / "here")
    before = look_at(there)
    change(there)

    changes = changes_between(there, before, look_at(there))
    put(here, changes)

    assert state(here) == state(there)
    assert bool(changes) == (change is not CHANGES["nothing"])
