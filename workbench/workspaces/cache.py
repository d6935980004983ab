"""Trees on disk, by what they were read from: one file each, written once, and the least used removed. Blocking.

A tree that is in use is a view of its file, which stays readable after its removal; so nothing has to be counted.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from workbench.sandbox.job import TreeFile
from workbench.trees import Tree
from workbench.workspaces.errors import WorkspaceUnavailable

SUFFIX = ".tree"
HEAD = struct.Struct("!8sQ")
MAGIC = b"ratchet1"
UNFINISHED_S = 3600.0
"""So old is what a process that was killed left half written."""


class TreeCache:
    def __init__(self, folder: Path, most_bytes: int) -> None:
        """The folder is made where something is kept."""
        self._folder, self._most = folder, most_bytes
        self._remove_unfinished()

    def get(self, source: str) -> Tree | None:
        """None where it is not there, or not whole."""
        path = self._path(source)
        try:
            with path.open("rb") as file:
                os.utime(file.fileno())
                view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            return Tree(dict(_files(view)))
        except (OSError, ValueError, KeyError, struct.error):
            return None

    def put(self, source: str, tree: Tree) -> Tree:
        """The tree as it lies on disk. Raises WorkspaceUnavailable where it can't."""
        index = [[path, len(file.content), file.executable, file.is_link] for path, file in tree.files.items()]
        head = json.dumps(index).encode()
        content = b"".join([HEAD.pack(MAGIC, len(head)), head, *(file.content for file in tree.files.values())])
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._write(self._path(source), content)
        except OSError as error:
            raise WorkspaceUnavailable(
                f"a workspace can't be kept: {error}: name another folder in RATCHET_WORKSPACE_CACHE"
            ) from error
        self._make_room()
        return self.get(source) or tree

    def _path(self, source: str) -> Path:
        return self._folder / f"{sha256(source.encode('utf-8', 'surrogateescape')).hexdigest()}{SUFFIX}"

    def _write(self, path: Path, content: bytes) -> None:
        """Whole or not at all."""
        temporary = path.with_name(f"{path.name}.{uuid4().hex}.tmp")
        try:
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(path)
        finally:
            temporary.unlink(missing_ok=True)

    def _make_room(self) -> None:
        """Removes what was not used for longest. The newest stays, whatever its size."""
        known = sorted(_entries(self._folder), reverse=True)
        room = self._most
        for number, (_, size, path) in enumerate(known):
            room -= size
            if room < 0 and number:
                path.unlink(missing_ok=True)

    def _remove_unfinished(self) -> None:
        for path in self._folder.glob(f"*{SUFFIX}.*.tmp"):
            with suppress(OSError):
                if path.stat().st_mtime < time.time() - UNFINISHED_S:
                    path.unlink()


def _entries(folder: Path) -> Iterator[tuple[float, int, Path]]:
    for path in folder.glob(f"*{SUFFIX}"):
        with suppress(OSError):
            about = path.stat()
            yield about.st_mtime, about.st_size, path


def _files(view: memoryview) -> Iterator[tuple[str, TreeFile]]:
    """Raises ValueError for a file that is not whole."""
    magic, size = HEAD.unpack_from(view)
    at = HEAD.size + size
    if magic != MAGIC or at > len(view):
        raise ValueError("no tree")
    for path, length, executable, is_link in json.loads(bytes(view[HEAD.size : at])):
        if at + length > len(view):
            raise ValueError("cut off")
        yield path, TreeFile(view[at : at + length], executable, is_link)
        at += length
