"""The revision of a program: a sum over its declaration and every file of what it binds.

Two runners have the same program if the sums are the same, wherever the folders lie on their machines. Left out is what
no program is changed by: owners, times, `__pycache__`, and the folder of git. What a link points to outside of the
bound folder is not read: a sandbox does not see it either. An image is known by its sum, and one that is a folder of
somebody's own by its files, as what is bound is; what of it nobody but its owner may read counts by its mode and size.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Collection, Iterator
from itertools import chain
from pathlib import Path

from ratchet.programs.declared import Program
from ratchet.programs.images.store import own_folder, sum_of
from workbench.sandbox.bubblewrap import OURS

LEFT_OUT = frozenset({"__pycache__", ".git"})
CHUNK = 1024 * 1024


def _raise(error: OSError) -> None:
    raise error


def _pass_over(error: OSError) -> None:
    """Pass over a folder that may not be read: what runs in an image may not look into it either."""
    if not isinstance(error, PermissionError):
        raise error


Look = tuple[tuple[str, int, int, int, int], ...]
"""Path, mode, size, time of change and inode of every file: as long as it is the same, so is the content."""


def revision_of(program: Program) -> str:
    """Reads every byte of what it binds. Raises OSError for what can't be read."""
    declared = program.model_dump_json(exclude={"binds", "image"})
    total = hashlib.sha256(declared.encode())
    if program.image is not None:
        total.update(_with_length((sum_of(program.image) or "a folder").encode()))
        if (root := own_folder(program.image)) is not None:
            for path in _of_image(root):
                total.update(_with_length(os.fsencode(path.relative_to(root))))
                total.update(_content_or_closed(path))
    for at, folder in sorted(program.binds.items()):
        total.update(_with_length(at.encode()))
        for path in _files(folder):
            total.update(_with_length(os.fsencode(path.relative_to(folder))))
            total.update(_content(path))
    return total.hexdigest()


def look_at(program: Program) -> Look:
    """Return what tells, without reading it, that nothing has changed. Raises OSError."""
    found = []
    root = program.image and own_folder(program.image)
    for path in chain(*map(_files, program.binds.values()), _of_image(root) if root else ()):
        one = path.lstat()
        found.append((str(path), one.st_mode, one.st_size, one.st_ctime_ns, one.st_ino))
    return tuple(found)


def _of_image(root: Path) -> Iterator[Path]:
    """Those that a sandbox shows: of folders that are a sandbox's own (`/proc`, `/tmp`) it takes none from an image."""
    return _files(root, closed=_pass_over, hidden=OURS)


def _files(folder: Path, closed: Callable[[OSError], None] = _raise, hidden: Collection[str] = ()) -> Iterator[Path]:
    """Files and links of all kinds, in one order on every machine. `closed`: is told of a folder that can't be read.
    `hidden`: names that are left out at the top."""
    for here, folders, names in os.walk(folder, onerror=closed):
        left_out = LEFT_OUT.union(hidden) if here == os.fspath(folder) else LEFT_OUT
        folders[:] = sorted(name for name in folders if name not in left_out)
        links = [name for name in folders if Path(here, name).is_symlink()]
        files = [name for name in names if here != os.fspath(folder) or name not in hidden]
        for name in sorted([*files, *links]):
            yield Path(here, name)


def _content(path: Path) -> bytes:
    """Return of a file its sum and whether it may be run, of a link its target, of anything else what it is."""
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return _with_length(b"link " + os.fsencode(path.readlink()))
    if not stat.S_ISREG(mode):
        return _with_length(f"special {stat.S_IFMT(mode):o}".encode())
    of_file = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            of_file.update(chunk)
    return _with_length(b"run" if mode & 0o111 else b"read") + of_file.digest()


def _content_or_closed(path: Path) -> bytes:
    try:
        return _content(path)
    except PermissionError:
        one = path.lstat()
        return _with_length(f"closed {one.st_mode:o} {one.st_size}".encode())


def _with_length(part: bytes) -> bytes:
    return len(part).to_bytes(8, "big") + part
