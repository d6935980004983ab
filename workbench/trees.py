"""Trees of files: as a value, put into a folder that something hostile writes to, and taken out of it.

Each path is opened from a descriptor by openat2, from outside, so that nothing has to run inside. No link is followed
and no file system crossed, and bytes and files are counted. Folders without files, owners, times and all of a mode but
its executable bit are no part of a tree; nor is what a repository keeps about itself, in `.git`. Tools change files in
a folder of their own kind: tools/tree.py.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from workbench.sandbox.job import SandboxError, TreeFile
from workbench.workspaces.errors import WorkspaceError, WorkspaceUnavailable

REPOSITORY = ".git"
NO_WRITER_WITHIN_S = 10.0
OPENAT2 = 437
"""The same number on every architecture."""
NO_XDEV, NO_MAGICLINKS, NO_SYMLINKS, BENEATH, IN_ROOT = 0x01, 0x02, 0x04, 0x08, 0x10

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Bounds:
    """Limits of one tree."""

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
        """Digest of paths, modes and contents."""
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


def printable(path: str) -> str:
    """The path as people and JSON can have it: bytes that are no UTF-8 become escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def check_path(path: str) -> str:
    """Raises WorkspaceError for what is no plain path below a folder, or lies in a repository's own."""
    for part in path.split("/"):
        if part in ("", ".", "..") or part.lower() == ".git" or "\0" in part:
            raise WorkspaceError(f"{printable(path)!r} is no path of a file in a workspace")
    return path


def check_tree(files: Mapping[str, TreeFile], bounds: Bounds) -> Tree:
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
                raise WorkspaceError(f"{printable(path[:at])!r} is a file, or a link, and a folder")
            at = path.find("/", at + 1)
    return tree


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class Collected(NamedTuple):
    """`left_out` has a reason for each path that is not among the files."""

    files: Mapping[str, bytes]
    left_out: Mapping[str, str]


def open_beneath(folder: int, path: str, flags: int = os.O_RDONLY, mode: int = 0) -> int:
    """A descriptor of what lies in the folder and on no other file system, behind no link. Raises OSError."""
    flags |= os.O_NONBLOCK | os.O_NOFOLLOW
    return open_resolved(folder, path, flags, mode, BENEATH | NO_SYMLINKS | NO_MAGICLINKS | NO_XDEV)


def open_resolved(folder: int, path: str, flags: int, mode: int, resolve: int) -> int:
    """Open a path by openat2. Raises OSError."""
    how = _How(flags=flags | os.O_CLOEXEC, mode=mode, resolve=resolve)
    opened = _libc.syscall(OPENAT2, folder, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
    if opened < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return int(opened)


def collect(folder: int, paths: Sequence[str], most: int) -> Collected:
    """Plain files of at most so many bytes together. `folder` is a descriptor."""
    files, left_out, room = dict[str, bytes](), dict[str, str](), most
    for path in dict.fromkeys(paths):
        try:
            read = read_at_most(folder, path, room)
        except OSError as error:
            left_out[path] = why_not(error)
            continue
        if read is None:
            left_out[path] = f"with it there would be more than {most:,} bytes"
        else:
            files[path] = read.content
            room -= len(read.content)
    return Collected(files, left_out)


class Read(NamedTuple):
    content: bytes
    mode: int


def read_at_most(folder: int, path: str, room: int) -> Read | None:
    """None where it is larger than there is room. Never waits: a FIFO or a device is opened without blocking.

    Raises OSError for what is no plain file beneath the folder.
    """
    opened = open_beneath(folder, path)
    with os.fdopen(opened, "rb", buffering=0) as file:
        about = os.fstat(opened)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "no plain file", path)
        if about.st_size > room:
            return None
        content = bytearray()
        while len(content) <= room and (part := file.read(min(1 << 20, room + 1 - len(content)))):
            content += part
    return Read(bytes(content), about.st_mode) if len(content) <= room else None


def why_not(error: OSError) -> str:
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            return "not there"
        case errno.ELOOP | errno.EXDEV:
            return "it is, or lies behind, a link"
        case _:
            return error.strerror or str(error)


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
    """Give files that this thread makes to the owner of the folder: the kernel makes none there for root outside."""
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
    """Wait until the kernel would execute a file, which it refuses while one has it open for writing (ETXTBSY).

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
    """Take a folder's files, in the order of their paths, as far as there is room. `folder` is a descriptor.

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


def read_folder(asked: str, allowed: Sequence[Path], bounds: Bounds) -> Tree:
    """Read through descriptors, without following a link below what is allowed. Raises WorkspaceError."""
    path = Path(asked)
    root = next((root for root in allowed if path.is_relative_to(root) and ".." not in path.parts), None)
    if root is None:
        raise WorkspaceError(
            f"the folder {asked!r} is below none that this service may read: name one above it in "
            f"RATCHET_WORKSPACE_FOLDERS"
        )
    try:
        above = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise WorkspaceUnavailable(f"{root}: {error.strerror}") from error
    try:
        folder = open_beneath(above, str(path.relative_to(root)))
    except OSError as error:
        raise WorkspaceError(f"the folder {asked!r} can't be opened without following a link: {error}") from error
    finally:
        os.close(above)
    try:
        left = take(folder, bounds.bytes, bounds.files)
    finally:
        os.close(folder)
    if left.left_out:
        name, why = next(iter(left.left_out.items()))
        raise WorkspaceError(f"the folder {asked!r} is no workspace: {printable(name)}: {why}")
    return check_tree(left.files, bounds)
