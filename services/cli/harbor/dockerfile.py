"""The part of a Dockerfile that needs no container engine: a base, a WORKDIR, and files that are copied. Pure."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from schemas.messages.workspace import SEEN_AT

BASES = {
    **dict.fromkeys(("alpine", "busybox", "debian", "python", "ubuntu"), "python"),
    "golang": "go",
    "node": "javascript",
    "rust": "rust",
}
"""Images that the machine's own /usr stands in for, and the language whose tools it then needs."""
_CONTINUED = re.compile(r"\\\n")
_IGNORED = ("LABEL", "MAINTAINER", "EXPOSE")
_GLOB = re.compile(r"[*?\[$]")


class NeedsEngine(ValueError):
    """Only a container engine can build it; the sentence says what for."""


@dataclass(frozen=True, slots=True)
class PlainImage:
    """`files`: those of the build context, by their path in the working directory."""

    language: str
    directory: str
    files: Mapping[str, str]


def read_dockerfile(text: str, context: Mapping[str, str], directory: str | None = None) -> PlainImage:
    """Read it. `context`: the files of its folder. `directory` is where work begins, whatever it says. Raises
    NeedsEngine."""
    language, workdir, files = "", "/", dict[str, str]()
    for word, rest in _instructions(text):
        if word == "FROM" and not language:
            language = _language_of(rest)
        elif word == "WORKDIR":
            workdir = posixpath.join(workdir, _plain(rest.strip()))
        elif word == "COPY" or (word == "ADD" and "://" not in rest):
            files |= _read_copy(rest, workdir, context, files)
        elif word not in _IGNORED:
            raise NeedsEngine(f"{word} {rest}")
    if not language:
        raise NeedsEngine("no FROM")
    root = posixpath.normpath(directory or workdir)
    if root == "/":
        raise NeedsEngine("no WORKDIR: the whole image is where work begins")
    if not re.fullmatch(SEEN_AT, root):
        raise NeedsEngine(f"WORKDIR {root}, where a sandbox has files of its own")
    if outside := [path for path in files if not path.startswith(f"{root}/")]:
        raise NeedsEngine(f"{outside[0]} is copied outside of WORKDIR {root}")
    return PlainImage(language, root, {path.removeprefix(f"{root}/"): files[path] for path in files})


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in _CONTINUED.sub(" ", "\n".join(lines)).splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield word.upper(), rest.strip()


def _language_of(image: str) -> str:
    name = image.split()[0].partition("@")[0].rpartition("/")[2].partition(":")[0]
    if name not in BASES or len(image.split()) > 1:
        raise NeedsEngine(f"FROM {image}; without one there are {', '.join(sorted(BASES))}")
    return BASES[name]


def _read_copy(rest: str, workdir: str, context: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """Return what a COPY brings, by absolute path."""
    words = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
    flags = [word for word in words if word.startswith("--")]
    *sources, to = words[len(flags) :] or [""]
    if not sources or any(not flag.startswith(("--chown=", "--chmod=")) for flag in flags):
        raise NeedsEngine(f"COPY {rest}")
    place = posixpath.normpath(posixpath.join(workdir, _plain(to)))
    is_folder = len(sources) > 1 or to.endswith(("/", ".")) or place == posixpath.normpath(workdir)
    is_folder = is_folder or any(path.startswith(f"{place}/") for path in before)
    found: dict[str, str] = {}
    for source in sources:
        path = posixpath.normpath(_plain(source).lstrip("/") or ".")
        inside = "" if path == "." else f"{path}/"
        if path in context:
            found[posixpath.join(place, posixpath.basename(path)) if is_folder else place] = context[path]
        elif below := [one for one in context if one.startswith(inside)]:
            found |= {posixpath.join(place, one.removeprefix(inside)): context[one] for one in below}
        else:
            raise NeedsEngine(f"COPY {source}: there is no such file in environment/")
    return found


def _plain(path: str) -> str:
    if _GLOB.search(path):
        raise NeedsEngine(f"the pattern {path}")
    return path
