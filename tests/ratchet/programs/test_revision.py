"""A program's revision: the same wherever it lies, another once anything of it is another."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.programs.declared import Program
from ratchet.programs.revision import look_at, revision_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "one"
    (place / "lib").mkdir(parents=True)
    (place / "agent.py").write_text("print(1)")
    (place / "lib" / "a.py").write_text("a = 1")
    (place / "link").symlink_to("agent.py")
    return place


def bound(folder: Path, **given: object) -> Program:
    return Program.model_validate({"command": ("python3", "/agent/agent.py"), "binds": {"/agent": folder}} | given)


def test_it_is_the_same_wherever_the_folder_lies(folder: Path, tmp_path: Path) -> None:
    before = revision_of(bound(folder))
    shutil.copytree(folder, tmp_path / "two", symlinks=True)
    os.utime(tmp_path / "two" / "agent.py", (0, 0))
    (tmp_path / "two" / "__pycache__").mkdir()
    (tmp_path / "two" / "__pycache__" / "agent.pyc").write_bytes(b"compiled")

    assert revision_of(bound(tmp_path / "two")) == before


def edit(folder: Path) -> None:
    (folder / "lib" / "a.py").write_text("a = 22")  # longer: the clock of files may not have ticked


def add(folder: Path) -> None:
    (folder / "lib" / "b.py").write_text("")


def rename(folder: Path) -> None:
    (folder / "agent.py").rename(folder / "other.py")


def may_run(folder: Path) -> None:
    (folder / "agent.py").chmod(0o755)


def link_elsewhere(folder: Path) -> None:
    (folder / "link").unlink()
    (folder / "link").symlink_to("./lib/a.py")  # longer, too


@pytest.mark.parametrize("change", [edit, add, rename, may_run, link_elsewhere])
def test_any_change_of_a_file_makes_another(folder: Path, change: object) -> None:
    (folder / "agent.py").chmod(0o644)
    before, looked = revision_of(bound(folder)), look_at(bound(folder))

    change(folder)  # type: ignore[operator]

    assert revision_of(bound(folder)) != before
    assert look_at(bound(folder)) != looked


@pytest.mark.parametrize(
    "given",
    [
        {"command": ("python3", "/agent/agent.py", "-v")},
        {"environment": {"MODE": "fast"}},
        {"limits": {"seconds": 5}},
        {"data": {"/notes": "be brief"}},
    ],
)
def test_so_does_any_change_of_its_declaration(folder: Path, given: dict[str, object]) -> None:
    assert revision_of(bound(folder, **given)) != revision_of(bound(folder))


def test_where_it_is_bound_counts(folder: Path) -> None:
    elsewhere = bound(folder).model_copy(update={"binds": {"/other": folder}})
    assert revision_of(elsewhere) != revision_of(bound(folder))


def test_what_can_not_be_read_is_said(folder: Path) -> None:
    program = bound(folder)
    shutil.rmtree(folder)
    with pytest.raises(FileNotFoundError):
        revision_of(program)


def test_an_image_is_known_by_its_sum_wherever_it_is_unpacked(tmp_path: Path) -> None:
    def of(image: dict[str, object]) -> str:
        return revision_of(Program.model_validate({"command": ("/bin/agent",), "image": image}))

    declared, other = (of({"archive": "agent.tar", "sha256": digit * 64}) for digit in "ab")
    unpacked = [of({"folder": tmp_path / at / ".images" / ("a" * 64) / "root"}) for at in ("here", "there")]

    assert unpacked == [declared, declared] != [other, other]


@pytest.mark.parametrize("change", [None, edit, add, rename, may_run, link_elsewhere])
def test_an_image_that_is_somebodys_folder_is_known_by_its_files(
    folder: Path, tmp_path: Path, change: Callable[[Path], None] | None
) -> None:
    def imaged(root: Path) -> Program:
        return Program.model_validate({"command": ("/bin/agent",), "image": {"folder": root}})

    (folder / "agent.py").chmod(0o644)
    shutil.copytree(folder, tmp_path / "two", symlinks=True)
    before, looked = revision_of(imaged(folder)), look_at(imaged(folder))
    if change is not None:
        change(folder)

    same = (revision_of(imaged(folder)) == before, look_at(imaged(folder)) == looked)
    assert same == ((True, True) if change is None else (False, False))
    assert revision_of(imaged(tmp_path / "two")) == before


def test_what_of_an_image_no_sandbox_shows_does_not_count(folder: Path) -> None:
    """A chroot's `/proc` has files without an end, and its `/tmp` changes all the time."""
    imaged = Program.model_validate({"command": ("/bin/agent",), "image": {"folder": folder}})
    before, looked = revision_of(imaged), look_at(imaged)
    for name in ("tmp", "proc"):
        (folder / name).mkdir()
        (folder / name / "new").write_text("")

    assert (revision_of(imaged), look_at(imaged)) == (before, looked)
    (folder / "lib" / "tmp").mkdir()
    (folder / "lib" / "tmp" / "new").write_text("")
    assert revision_of(imaged) != before
