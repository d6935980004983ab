"""Whole trees of files: put into a workspace before its command begins, and taken out of it when all is over.

Both go by a descriptor of the workspace, from outside, so that nothing has to run inside and any number of files will
do. What is taken out was written by hostile code: no link is followed, no file system crossed, and bytes and files are
counted. Folders without files, owners, times and all of a mode but its executable bit are no part of a tree; nor is
what a repository keeps about itself, in `.git`.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from workbench.sandbox.job import SandboxError, TreeFile
from workbench.sandbox.workspace import open_beneath, read_at_most, why_not

REPOSITORY = ".git"
NO_WRITER_WITHIN_S = 10.0
_libc = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True)
class Left:
    """`left_out` has a reason for each path that is not among the files; "." where there are too many."""

    files: dict[str, TreeFile] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def put(folder: int, tree: Mapping[str, TreeFile], but: Mapping[str, object]) -> None:
    """All of a tree `but` what lies there already. `folder` is a descriptor. Raises SandboxError.

    Links come last: until then there is nothing that a path could lead out through.
    """
    made = {""}
    try:
        with _as_owner(folder):
            for path, file in sorted(tree.items(), key=lambda item: item[1].is_link):
                if path in but:
                    continue
                for parent in _missing(path, made):
                    _make_folder(folder, parent)
                if file.is_link:
                    os.symlink(bytes(file.content), os.fsencode(path), dir_fd=folder)
                else:
                    _write(folder, path, file)
            for path, file in tree.items():
                if file.executable and path not in but:
                    _wait_for_no_writer(folder, path)
    except OSError as error:
        raise SandboxError(f"the tree does not go into the workspace: {error.filename!r}: {error.strerror}") from error


@contextmanager
def _as_owner(folder: int) -> Iterator[None]:
    """Of files this thread makes, the owner is who runs in there: the kernel makes none there for root outside."""
    owner, user, group = os.fstat(folder), os.geteuid(), os.getegid()
    foreign = owner.st_uid != user
    try:
        if foreign:
            _libc.setfsgid(owner.st_gid)
            _libc.setfsuid(owner.st_uid)
        yield
    finally:
        if foreign:
            _libc.setfsuid(user)
            _libc.setfsgid(group)


def _missing(path: str, made: set[str]) -> Iterator[str]:
    at = path.find("/")
    while at != -1:
        if (parent := path[:at]) not in made:
            made.add(parent)
            yield parent
        at = path.find("/", at + 1)


def _make_folder(folder: int, path: str) -> None:
    try:
        os.mkdir(path, 0o755, dir_fd=folder)
    except FileExistsError:
        if not stat.S_ISDIR(os.stat(path, dir_fd=folder, follow_symlinks=False).st_mode):
            raise


def _write(folder: int, path: str, file: TreeFile) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open(path, flags, 0o755 if file.executable else 0o644, dir_fd=folder)
    try:
        left = memoryview(file.content)
        while left:
            left = left[os.write(opened, left) :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        os.close(opened)


def _wait_for_no_writer(folder: int, path: str) -> None:
    """Until the kernel would execute it, which it refuses while anybody has the file open for writing (ETXTBSY).

    Whatever another thread of this process starts has a copy of every descriptor until its own exec, so also of the one
    that was just written through. A read lease is given where there is no writer left.
    """
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    until = time.monotonic() + NO_WRITER_WITHIN_S
    try:
        while not _is_leased(opened):
            if time.monotonic() > until:
                raise OSError(errno.ETXTBSY, f"still open for writing after {NO_WRITER_WITHIN_S:g} s", path)
            time.sleep(0.001)
    finally:
        os.close(opened)


def _is_leased(opened: int) -> bool:
    """Given back with the descriptor. True, too, on a file system that knows no leases."""
    try:
        fcntl.fcntl(opened, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        if error.errno == errno.EAGAIN:
            return False
        if error.errno != errno.EINVAL:
            raise
    return True


def take(folder: int, most_bytes: int, most_files: int) -> Left:
    """All of it, in the order of its paths, as far as there is room. `folder` is a descriptor.

    Never waits, and never lists more than so many entries. Links are taken as links.
    """
    found, room, waiting = Left(), most_bytes, [""]
    for _ in range(most_files + 1):
        if not waiting:
            break
        room = _take_folder(folder, waiting.pop(), found, waiting, room, most_bytes, most_files)
    ordered = dict(sorted(found.files.items()))
    return Left(ordered, dict(sorted(found.left_out.items())))


def _take_folder(
    folder: int, place: str, found: Left, waiting: list[str], room: int, most_bytes: int, most_files: int
) -> int:
    """Returns the room that is left."""
    try:
        opened = open_beneath(folder, place or ".")
    except OSError as error:
        found.left_out[place or "."] = why_not(error)
        return room
    try:
        with os.scandir(opened) as entries:
            for entry in entries:
                if len(found.files) + len(found.left_out) + len(waiting) >= most_files:
                    found.left_out["."] = f"there are more than {most_files:,} files and folders"
                    waiting.clear()
                    break
                path = f"{place}/{entry.name}" if place else entry.name
                if entry.name == REPOSITORY:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(path)
                    continue
                try:
                    file = _link(opened, entry.name) if entry.is_symlink() else _file(folder, path, room)
                except OSError as error:
                    found.left_out[path] = why_not(error)
                    continue
                if file is None:
                    found.left_out[path] = f"with it there would be more than {most_bytes:,} bytes"
                else:
                    found.files[path] = file
                    room -= len(file.content)
    finally:
        os.close(opened)
    return room


def _link(opened: int, name: str) -> TreeFile:
    return TreeFile(os.fsencode(os.readlink(name, dir_fd=opened)), is_link=True)


def _file(folder: int, path: str, room: int) -> TreeFile | None:
    """None where it is larger than there is room."""
    read = read_at_most(folder, path, room)
    return None if read is None else TreeFile(read.content, executable=bool(read.mode & stat.S_IXUSR))
