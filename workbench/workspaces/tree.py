"""A tree: a workspace's files as they were before anybody worked on them. A value; nothing writes to it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from workbench.sandbox.job import TreeFile
from workbench.workspaces.errors import WorkspaceError


@dataclass(frozen=True)
class Bounds:
    """Of one tree."""

    bytes: int
    files: int


@dataclass(frozen=True)
class Tree:
    """`files` by path, with `/` between folders; bytes of names that are no UTF-8 are surrogates, as in `os.fsdecode`.

    Contents may be views of a file on disk.
    """

    files: Mapping[str, TreeFile]

    @cached_property
    def sha256(self) -> str:
        """Of paths, modes and contents."""
        whole = hashlib.sha256()
        for path in sorted(self.files):
            file = self.files[path]
            name = os.fsencode(path)
            mode = 120_000 if file.is_link else 100_755 if file.executable else 100_644
            whole.update(b"%d %d %d %b" % (mode, len(name), len(file.content), name))
            whole.update(file.content)
        return whole.hexdigest()

    @property
    def size(self) -> int:
        return sum(len(file.content) for file in self.files.values())

    def with_files(self, files: Mapping[str, bytes]) -> Tree:
        """These put over those that are there."""
        return Tree({**self.files, **{path: TreeFile(content) for path, content in files.items()}})


def shown(path: str) -> str:
    """The path as people and JSON can have it: bytes that are no UTF-8 become escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def check_path(path: str) -> str:
    """Raises WorkspaceError for what is no plain path below a folder, or lies in a repository's own."""
    for part in path.split("/"):
        if part in ("", ".", "..") or part.lower() == ".git" or "\0" in part:
            raise WorkspaceError(f"{shown(path)!r} is no path of a file in a workspace")
    return path


def checked(files: Mapping[str, TreeFile], bounds: Bounds) -> Tree:
    """Raises WorkspaceError for too many or too large files, and for a path that is a file and a folder."""
    if len(files) > bounds.files:
        raise WorkspaceError(f"the workspace has {len(files):,} files, and may have {bounds.files:,}")
    tree = Tree(dict(sorted(files.items())))
    if tree.size > bounds.bytes:
        raise WorkspaceError(f"the workspace has {tree.size:,} bytes, and may have {bounds.bytes:,}")
    for path in files:
        check_path(path)
        at = path.find("/")
        while at != -1:
            if path[:at] in files:
                raise WorkspaceError(f"{shown(path[:at])!r} is a file, or a link, and a folder")
            at = path.find("/", at + 1)
    return tree
