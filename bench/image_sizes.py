"""`python -m bench.image_sizes [--commit ad8bfd4]`: what the images of a commit and of this tree install, in MB.

No image is built. For each, the distributions that services/Dockerfile would install are looked up here (they must be
installed, in the versions of constraints.txt) and their files added up, without those that the Dockerfile deletes and
without bytecode; so are the files of ours that it keeps. Left out: the base image and Debian's packages, which is all
that two commits have in common, and that the Dockerfile strips some libraries of their symbols.
"""

from __future__ import annotations

import argparse
import fnmatch
import subprocess
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, distribution
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from infra.image_requirements import requirements

ROOT = Path(__file__).parents[1]
BEFORE = "ad8bfd4"
MB = 1_000_000
OWN = ("schemas", "workbench", "ratchet", "services", "demos")
DELETED_FOLDERS = ("*/tests/*", "numpy/f2py/*", "numpy/distutils/*")
DELETED_FILES = ("*.pyi", "*.pyx", "*.a", "*.h")
DELETED_OF_NUMPY = ("numpy/_core/*_tests.*.so", "numpy/_core/*_simd.*.so")
"""As the Dockerfile deletes them; of torch it keeps what it deletes by a file's name elsewhere."""


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes: of what is installed for it, and of our own files."""

    dependencies: int
    own: int
    names: frozenset[str]


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def image(commit: str, service: str) -> Size:
    """Raises PackageNotFoundError for a distribution that is not installed here."""
    wanted = requirements(git("show", f"{commit}:pyproject.toml"), [service])
    names = frozenset(closure(map(Requirement, wanted)))
    return Size(sum(map(installed, names)), own_bytes(commit, service), names)


def closure(wanted: Iterable[Requirement]) -> Iterator[str]:
    """Canonical names of all that these need, themselves included, each once."""
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
    """Bytes of its files that stay in an image."""
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


def own_bytes(commit: str, service: str) -> int:
    """Of the packages that the wheel has, without other processes' files (but for those that the Dockerfile keeps)."""
    files = {}
    for line in git("ls-tree", "-r", "-l", commit, *OWN).splitlines():
        size, path = line.split(maxsplit=3)[3].split("\t")
        files[PurePosixPath(path)] = int(size)
    keeps_settings = any(path.parts[0] == "ratchet" for path in files)
    folders = {path.parent for path in files if path.name == "__main__.py" and len(path.parts) == 3}
    others = [folder for folder in folders if folder.name != service and folder.parts[0] in ("services", "ratchet")]
    others = [folder for folder in others if folder.parts[0] == "services" or folder.name == "cli"]

    def kept(path: PurePosixPath) -> bool:
        other = next((folder for folder in others if folder in path.parents), None)
        return other is None or (
            keeps_settings and path.parent == other and path.name in ("settings.py", "__init__.py")
        )

    return sum(size for path, size in files.items() if kept(path))


def services(commit: str) -> list[str]:
    """Names of the services that have an image."""
    paths = map(PurePosixPath, git("ls-tree", "-r", "--name-only", commit, *OWN).splitlines())
    found = {path.parent.name for path in paths if path.name == "__main__.py"}
    return sorted(
        found & tomllib.loads(git("show", f"{commit}:pyproject.toml"))["project"]["optional-dependencies"].keys()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commit", default=BEFORE)
    commit = parser.parse_args().commit
    before = {service: image(commit, service) for service in services(commit)}
    print(
        f"| image | {commit}: dependencies + own | now: dependencies + own | ratio | what came |\n"
        "| --- | --- | --- | --- | --- |"
    )
    for service in services("HEAD"):
        now, then = image("HEAD", service), before.get(service)
        ratio = f"{(now.dependencies + now.own) / (then.dependencies + then.own):.3f}" if then else ""
        came = (
            ", ".join(f"{name} {installed(name) / MB:.1f}" for name in sorted(now.names - then.names)) if then else ""
        )
        print(f"| {service} | {_told(then)} | {_told(now)} | {ratio} | {came} |")


def _told(size: Size | None) -> str:
    return f"{size.dependencies / MB:,.1f} + {size.own / MB:.1f}" if size else "none"


if __name__ == "__main__":
    main()
