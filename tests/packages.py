"""Copies of a few installed packages, and of what they require, for sandboxed programs.

A runner reads every byte of what its programs bind, and all packages here are 2 GB."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement


def copy_packages(folder: Path, named: Iterable[str]) -> None:
    """Copy packages, each named as in pyproject.toml, such as `mcp==2.*`."""
    for one in _required(named):
        for file in one.files or ():
            if not {"..", "__pycache__"} & set(file.parts):
                copy = folder / file
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), copy)


def _required(named: Iterable[str]) -> Iterator[Distribution]:
    """Yield each required distribution once."""
    waiting, seen, given = list(map(Requirement, named)), set[str](), set[str]()
    while waiting:
        wanted = waiting.pop()
        if str(wanted) not in seen:
            seen.add(str(wanted))
            found = distribution(wanted.name)
            if found.name not in given:
                given.add(found.name)
                yield found
            waiting += (one for one in map(Requirement, found.requires or ()) if _holds(one, wanted.extras))


def _holds(requirement: Requirement, extras: Iterable[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))
