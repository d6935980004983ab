"""A folder that is swapped for a link to another, all the while: 50,000 reads and writes, none of which gets out."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.quick import rounds
from workbench.tools.operation import ToolError
from workbench.tools.tree import Tree

SWAPS = """
import ctypes, os, sys
os.chdir(sys.argv[1])
exchange = ctypes.CDLL(None).renameat2
print("swapping", flush=True)
while True:
    exchange(-100, b"folder", -100, b"evil", 2)
"""
SECRET, HARMLESS = b"outside", b"inside"


@contextmanager
def swapped(folder: Path) -> Iterator[Path]:
    """A workspace in which `folder` is now a folder and now a link to one outside."""
    root, outside = folder / "root", folder / "outside"
    (root / "folder").mkdir(parents=True)
    outside.mkdir()
    (root / "evil").symlink_to(outside)
    (root / "folder" / "file").write_bytes(HARMLESS)
    (outside / "file").write_bytes(SECRET)
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", SWAPS, str(root)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None and process.stdout.readline()
        yield root
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def test_no_read_and_no_write_gets_out(tmp_path: Path) -> None:
    with swapped(tmp_path) as root:
        tree, done, refused = Tree(root), 0, 0
        for number in range(rounds(50_000)):
            try:
                if number % 2:
                    tree.write("folder/file", HARMLESS, sync=False)
                else:
                    assert tree.read("folder/file", 100) == HARMLESS
                done += 1
            except ToolError:
                refused += 1
        tree.close()

    assert (tmp_path / "outside" / "file").read_bytes() == SECRET
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["file"]
    assert done and refused, "the links were met, and so was the folder"


def test_looking_before_opening_does_get_out(tmp_path: Path) -> None:
    """The positive control: the same attack on what is usually done."""
    until = time.monotonic() + 60
    with swapped(tmp_path) as root:
        while time.monotonic() < until:
            path = root / "folder" / "file"
            try:
                if path.resolve().is_relative_to(root) and path.read_bytes() == SECRET:
                    return
            except OSError:
                continue
    raise AssertionError("the attack does not work here, so nothing is shown by its failure")
