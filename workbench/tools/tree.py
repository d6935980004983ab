"""A workspace whose paths are opened by openat2 alone: beneath its root, on its file system, and behind no link.

So a link that is put in the place of a folder between two calls, or in the middle of one, is an error and leads
nowhere. What is written goes to a temporary file in an opened folder and is renamed there. Every call blocks.

Hard links can't be told from files: whoever can make one in the workspace to a file outside could read that file.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from workbench.tools.operation import ToolError
from workbench.trees import open_beneath

RENAME_NOREPLACE = 1
AGAIN = 8
"""Times that openat2 is asked again when a rename elsewhere made it unsure."""
GIT = ".git"
TEMPORARY = ".ratchet-tools-"
DEEPEST = 64
"""Folders in each other that are walked: each is opened from the root, so the time grows with the depth squared."""

_libc = ctypes.CDLL(None, use_errno=True)


class Entry(NamedTuple):
    """`kind` is file, folder, link or other. `path` is relative to the workspace."""

    path: str
    kind: str
    size: int
    mode: int
    modified: float


class Change:
    """The change of one call, in a thread: it is given up before its first write, or not at all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_begun = self._is_given_up = False

    def begin(self) -> None:
        with self._lock:
            if self._is_given_up:
                raise ToolError("limit", "the call was given up before it changed anything")
            self._is_begun = True

    def give_up(self) -> bool:
        """False where it has begun."""
        with self._lock:
            self._is_given_up = not self._is_begun
            return self._is_given_up


CHANGE: ContextVar[Change] = ContextVar("change")
"""The change of the call that this thread is for; whatever changes the workspace begins it."""


class Tree:
    """Raises ToolError throughout, saying what of a path is wrong."""

    def __init__(self, root: Path) -> None:
        self.path = root.resolve(strict=True)
        self._root = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._root)

    def open(self, path: str, flags: int = os.O_RDONLY) -> int:
        """A descriptor of what lies at the path, which is never made by this."""
        clean = self.clean(path)
        for _ in range(AGAIN):
            try:
                return open_beneath(self._root, clean, flags)
            except OSError as error:
                if error.errno != errno.EAGAIN:
                    raise _explain_error(error, path) from None
        raise ToolError("conflict", f"{path} is being moved about: try again")

    @staticmethod
    def clean(path: str) -> str:
        """A plain relative path. `.` is the workspace itself."""
        parts = PurePosixPath(path).parts
        if "\0" in path or len(os.fsencode(path)) > 4096:
            raise ToolError("arguments", "a path has at most 4096 bytes, and no NUL among them")
        if path.startswith("/"):
            raise ToolError("arguments", f"{path} is absolute: paths are relative to the workspace, such as src/app.py")
        if ".." in parts:
            raise ToolError("arguments", f"{path} leads up: name the path from the workspace's root, without `..`")
        return str(PurePosixPath(*parts))

    def read(self, path: str, most: int) -> bytes:
        """Read a plain file of at most so many bytes."""
        return self.read_file(path, most)[0]

    def read_file(self, path: str, most: int) -> tuple[bytes, os.stat_result]:
        with self._file(path) as descriptor:
            found = os.fstat(descriptor)
            if found.st_size > most:
                raise _too_long(path, found.st_size, most)
            content = bytearray()
            while len(content) <= most and (part := os.read(descriptor, min(1 << 20, most + 1 - len(content)))):
                content += part
            if len(content) > most:
                raise _too_long(path, len(content), most)
            return bytes(content), found

    @contextmanager
    def _file(self, path: str, flags: int = os.O_RDONLY) -> Iterator[int]:
        descriptor = self.open(path, flags)
        try:
            if not stat.S_ISREG(mode := os.fstat(descriptor).st_mode):
                what = "a folder: file_list shows it" if stat.S_ISDIR(mode) else "no plain file"
                raise ToolError("arguments", f"{path} is {what}")
            yield descriptor
        finally:
            os.close(descriptor)

    def stat(self, path: str) -> Entry:
        if self.clean(path) == ".":
            return _entry(".", os.fstat(self._root))
        with self.folder_of(path) as (folder, name):
            try:
                return _entry(self.clean(path), os.stat(name, dir_fd=folder, follow_symlinks=False))
            except OSError as error:
                raise _explain_error(error, path) from None

    def find(self, path: str) -> Entry | None:
        try:
            return self.stat(path)
        except ToolError as error:
            if error.kind == "not_found":
                return None
            raise

    @contextmanager
    def folder_of(self, path: str) -> Iterator[tuple[int, str]]:
        """The opened folder that the path lies in, and its name there."""
        clean = PurePosixPath(self.clean(path))
        if not clean.name:
            raise ToolError("arguments", f"{path} is the workspace itself: name something in it")
        folder = self.open(str(clean.parent), os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield folder, clean.name
        finally:
            os.close(folder)

    def entries(self, path: str) -> list[Entry]:
        """List what lies in a folder, by name; what is gone meanwhile is left out."""
        clean = self.clean(path)
        descriptor = self.open(clean, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return list(_entries(descriptor, "" if clean == "." else f"{clean}/"))
        finally:
            os.close(descriptor)

    def walk(self, path: str, most: int, skipped: frozenset[str] = frozenset()) -> Iterator[Entry]:
        """Everything below a folder, the folders before what is in them. `skipped` are names that are not entered."""
        waiting, seen = [self.clean(path)], 0
        deepest = len(PurePosixPath(waiting[0]).parts) + DEEPEST
        while waiting:
            folder = waiting.pop()
            try:
                entries = self.entries(folder)
            except ToolError:
                if seen == 0:
                    raise
                continue  # gone, or a link by now
            for entry in entries:
                seen += 1
                if seen > most:
                    raise ToolError("limit", f"there is more in {path} than {most:,} entries: name a folder in it")
                if PurePosixPath(entry.path).name in skipped:
                    continue
                yield entry
            inside = [one.path for one in reversed(entries) if one.kind == "folder"]
            waiting += [folder for folder in inside if PurePosixPath(folder).name not in skipped]
            if waiting and len(PurePosixPath(waiting[-1]).parts) > deepest:
                raise ToolError("limit", f"{path} has more than {DEEPEST} folders in each other: name one in it")

    def link(self, path: str) -> str:
        """Return where a symbolic link points to, wherever that is."""
        with self.folder_of(path) as (folder, name):
            try:
                return os.readlink(name, dir_fd=folder)
            except OSError as error:
                raise _explain_error(error, path) from None

    def write(self, path: str, content: bytes, *, mode: int | None = None, sync: bool = True) -> None:
        """Whole or not at all. A file keeps its mode; a link or a folder of that name is not replaced."""
        _begin_change()
        with self.folder_of(path) as (folder, name):
            temporary = f"{TEMPORARY}{secrets.token_hex(8)}"
            try:
                old = _plain(folder, name, path)
                mode = mode if mode is not None else stat.S_IMODE(old.st_mode) if old else 0o644
                descriptor = os.open(temporary, _NEW, 0o600, dir_fd=folder)
                try:
                    _write_all(descriptor, content)
                    os.fchmod(descriptor, mode & 0o777)
                    if sync:
                        os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                if sync:
                    os.fsync(folder)
            except OSError as error:
                raise _explain_error(error, path) from None
            finally:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)

    def append(self, path: str, content: bytes, most: int) -> int:
        """Its size then. A file that has a second name is not appended to: that name may lie elsewhere."""
        _begin_change()
        with self._file(path, os.O_WRONLY | os.O_APPEND) as descriptor:
            found = os.fstat(descriptor)
            if found.st_nlink > 1:
                raise ToolError("conflict", f"{path} has a second name (a hard link): file_write makes it a file alone")
            if found.st_size + len(content) > most:
                raise _too_long(path, found.st_size + len(content), most)
            try:
                _write_all(descriptor, content)
                os.fsync(descriptor)
            except OSError as error:
                os.ftruncate(descriptor, found.st_size)
                raise _explain_error(error, path) from None
            return found.st_size + len(content)

    def make_folder(self, path: str) -> list[str]:
        """Make a folder and those above it; return those that were made."""
        _begin_change()
        made, parts = list[str](), PurePosixPath(self.clean(path)).parts
        for depth in range(1, len(parts) + 1):
            here = str(PurePosixPath(*parts[:depth]))
            with self.folder_of(here) as (folder, name):
                try:
                    os.mkdir(name, 0o755, dir_fd=folder)
                    made.append(here)
                except FileExistsError:
                    os.close(self.open(here, os.O_RDONLY | os.O_DIRECTORY))
                except OSError as error:
                    raise _explain_error(error, path) from None
        return made

    def make_folder_of(self, path: str) -> None:
        """Make the folder that the path lies in."""
        if "/" in (clean := self.clean(path)):
            self.make_folder(clean.rpartition("/")[0])

    def symlink(self, path: str, target: str) -> None:
        """Make a link within the workspace; what has its name and is no folder is replaced."""
        _begin_change()
        aim = PurePosixPath(path).parent / target
        depth = 0
        for part in aim.parts:
            depth += -1 if part == ".." else 1
            if depth < 0 or target.startswith("/"):
                raise ToolError("policy", f"{path} would be a link that leads out of the workspace, to {target}")
        with self.folder_of(path) as (folder, name):
            temporary = f"{TEMPORARY}{secrets.token_hex(8)}"
            try:
                os.symlink(target, temporary, dir_fd=folder)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError as error:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise _explain_error(error, path) from None

    def move(self, source: str, target: str) -> None:
        """Move to a name that is not taken."""
        _begin_change()
        with self.folder_of(source) as (from_folder, old), self.folder_of(target) as (to_folder, new):
            moved = _libc.renameat2(from_folder, os.fsencode(old), to_folder, os.fsencode(new), RENAME_NOREPLACE)
            if moved == 0:
                return
            error = OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            if error.errno == errno.EEXIST:
                raise ToolError("conflict", f"{target} is there already: remove it first, or choose another name")
            raise _explain_error(error, f"{source} (to {target})")

    def remove(self, path: str) -> None:
        """A file, a link itself, or an empty folder."""
        _begin_change()
        with self.folder_of(path) as (folder, name):
            try:
                if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                    os.rmdir(name, dir_fd=folder)
                else:
                    os.unlink(name, dir_fd=folder)
            except OSError as error:
                raise _explain_error(error, path) from None


_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def is_git(path: str) -> bool:
    """Tell whether it is, or lies in, a folder of git's own, which only the git operations write to."""
    return any(part.casefold() == GIT for part in PurePosixPath(path).parts)


def require_not_git(*paths: str) -> None:
    """Raises ToolError for what is git's own."""
    if own := [path for path in paths if is_git(path)]:
        raise ToolError("policy", f"{own[0]} is git's own: use the git operations, and name files of the project")


def _begin_change() -> None:
    if (change := CHANGE.get(None)) is not None:
        change.begin()


def _entries(folder: int, prefix: str) -> Iterator[Entry]:
    with os.scandir(folder) as found:
        names = sorted(entry.name for entry in found)
    for name in names:
        with suppress(FileNotFoundError):
            yield _entry(prefix + name, os.stat(name, dir_fd=folder, follow_symlinks=False))


def _entry(path: str, found: os.stat_result) -> Entry:
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"), (stat.S_ISLNK, "link"))
    kind = next((kind for is_one, kind in kinds if is_one(found.st_mode)), "other")
    return Entry(path, kind, found.st_size, stat.S_IMODE(found.st_mode), found.st_mtime)


def _plain(folder: int, name: str, path: str) -> os.stat_result | None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        what = "a folder" if stat.S_ISDIR(found.st_mode) else "a link" if stat.S_ISLNK(found.st_mode) else "no file"
        raise ToolError("conflict", f"{path} is {what}, which is not written over: remove it first")
    return found


def _write_all(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def _too_long(path: str, size: int, most: int) -> ToolError:
    return ToolError("limit", f"{path} has {size:,} bytes, more than {most:,}: read a part of it (file_read_lines)")


def _explain_error(error: OSError, path: str) -> ToolError:
    match error.errno:
        case errno.ENOENT:
            return ToolError("not_found", f"{path} is not there: file_list and file_find show what is")
        case errno.ELOOP | errno.EXDEV:
            return ToolError("policy", f"{path} is, or lies behind, a link or another file system: name the real path")
        case errno.ENOTDIR:
            return ToolError("arguments", f"{path}: a part of it is a file or a link, or it is no folder")
        case errno.EISDIR:
            return ToolError("arguments", f"{path} is a folder")
        case errno.ENOTEMPTY | errno.EEXIST:
            return ToolError("conflict", f"{path} is not empty, or is there already")
        case errno.ENXIO:
            return ToolError("arguments", f"{path} is no plain file")
        case errno.EINVAL:
            return ToolError("arguments", f"{path} can't be used so: a folder can't be moved into itself")
        case errno.ENAMETOOLONG:
            return ToolError("arguments", f"{path} has a name of more than 255 bytes")
        case errno.ENOSPC | errno.EDQUOT:
            return ToolError("ours", f"{path} can't be written: the disk is full")
    return ToolError("failed", f"{path}: {error.strerror or error}")
