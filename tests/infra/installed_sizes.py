"""Looks up what an image's requirements bring along, and how many bytes of it stay in the image.

The distributions must be installed here. Files that services/Dockerfile deletes don't count.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import Distribution, distribution
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

MB = 1_000_000
DELETED_FOLDERS = ("*/tests/*", "numpy/f2py/*", "numpy/distutils/*")
DELETED_FILES = ("*.pyi", "*.pyx", "*.a", "*.h")
DELETED_OF_NUMPY = ("numpy/_core/*_tests.*.so", "numpy/_core/*_simd.*.so")
"""Files that the Dockerfile deletes; in torch it deletes none by these names."""


def closure(wanted: Iterable[Requirement]) -> Iterator[str]:
    """Yield the canonical names of these and of all that they require, each once."""
    waiting, seen = list(wanted), set[tuple[str, str]]()
    given = set[str]()
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if one.marker and not one.marker.evaluate({"extra": ""}):
            continue
        for extra in ("", *one.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            waiting += _needed(distribution(name), extra)
        if name not in given:
            given.add(name)
            yield name


def _needed(found: Distribution, extra: str) -> Iterator[Requirement]:
    for text in found.requires or ():
        one = Requirement(text)
        if one.marker is None:
            if not extra:
                yield one
        elif one.marker.evaluate({"extra": extra}) and (not extra or not one.marker.evaluate({"extra": ""})):
            one.marker = None
            yield one


@cache
def installed(name: str) -> int:
    """Return the bytes of a distribution that stay in an image."""
    files = distribution(name).files or ()
    return sum(
        Path(str(file.locate())).stat().st_size for file in files if stays(file) and Path(file.locate()).exists()
    )


def stays(file: PurePosixPath) -> bool:
    path = file.as_posix()
    if path.endswith(".pyc") or any(fnmatch.fnmatch(f"/{path}", f"*{pattern}") for pattern in DELETED_FOLDERS):
        return False
    of_torch = path.startswith("torch/")
    deleted = DELETED_OF_NUMPY if of_torch else (*DELETED_FILES, *DELETED_OF_NUMPY)
    return not any(fnmatch.fnmatch(path, pattern) for pattern in deleted)
