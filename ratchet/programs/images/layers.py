"""The layers of an image, laid over one another in a folder. Hostile ones find no way out of it.

Each path is resolved by the kernel as if the folder were the root (openat2, RESOLVE_IN_ROOT), so a link of a lower
layer leads nowhere else, and the last step of none follows a link. A layer is read twice: what it takes away of the
lower ones goes, and its size is known, before what it adds is made. Owners, extended attributes and all of a mode but
its executable bit are left out, so no program is set-uid. Devices, sockets and pipes are refused; what lies in folders
that a sandbox has of its own (bubblewrap.OURS) is passed over.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from ratchet.programs.images.archive import BadImage, ImageArchive, Room, entries, said_as_bad
from workbench.sandbox.bubblewrap import OURS
from workbench.trees import IN_ROOT, NO_MAGICLINKS, open_resolved

WHITEOUT, OPAQUE, RESERVED = ".wh.", ".wh..wh..opq", ".wh..wh."
"""Names of the OCI image specification: a file taken away, all of a folder, and those that mean nothing here."""
MOST_ENTRIES = 500_000
DEEPEST = 128
FOLDER, FILE, PROGRAM = 0o755, 0o644, 0o755
LATEST = 2**33
"""Seconds since 1970 that file systems take. Python looks whether what it compiled is as old as its source."""
READ_BYTES = 1 << 20
OF_THE_DISK = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE))
"""Errors that are no fault of the image's."""


def lay(archive: ImageArchive, folder: Path, most_bytes: int) -> None:
    """`most_bytes`: of all its layers, unpacked. Raises BadImage; OSError where the disk takes no more."""
    removing, adding = Room(most_bytes, MOST_ENTRIES), Room(most_bytes, MOST_ENTRIES)
    with _open_folder(folder) as root:
        for layer in archive.layers:
            with said_as_bad(), archive.open_layer(layer) as file:
                for _, entry in entries(file, removing):
                    _take_away(root, entry)
            with said_as_bad(), archive.open_layer(layer) as file:
                for tar, entry in entries(file, adding):
                    _add(root, tar, entry)


def make_folder(folder: Path, path: str) -> None:
    """Below it, as if it were the root. Raises BadImage."""
    with _open_folder(folder) as root, _said_as_bad(path), _folder(root, _path(path), make=True):
        pass


def has_program(folder: Path, path: str) -> bool:
    """Tell whether there is one at `path` as seen from inside, behind whatever links."""
    with _open_folder(folder) as root:
        try:
            found = open_resolved(root, path, os.O_PATH, 0, IN_ROOT | NO_MAGICLINKS)
        except OSError:
            return False
        mode = os.fstat(found).st_mode
        os.close(found)
    return stat.S_ISREG(mode) and bool(mode & 0o111)


@contextmanager
def _open_folder(folder: Path) -> Iterator[int]:
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield root
    finally:
        os.close(root)


def _take_away(root: int, entry: tarfile.TarInfo) -> None:
    path = _path(entry.name)
    at, _, name = path.rpartition("/")
    if not name.startswith(WHITEOUT):
        return
    if (gone := name.removeprefix(WHITEOUT)) in ("", ".", ".."):
        raise BadImage(f"{_printable(path)} takes no file away")
    with _said_as_bad(path), suppress(FileNotFoundError, NotADirectoryError), _folder(root, at) as opened:
        if name == OPAQUE:
            with os.scandir(opened) as found:
                names = [one.name for one in found]
            for one in names:
                _remove(opened, one)
        elif not name.startswith(RESERVED):
            _remove(opened, gone)


def _add(root: int, tar: tarfile.TarFile, entry: tarfile.TarInfo) -> None:
    path = _path(entry.name)
    at, _, name = path.rpartition("/")
    if not path or name.startswith(WHITEOUT) or path.partition("/")[0] in OURS:
        return
    with _said_as_bad(path), _folder(root, at, make=True) as folder:
        if entry.isdir():
            _make_folder(folder, name)
        elif entry.isreg() and not entry.issparse():
            _remove(folder, name)
            _write(folder, name, tar, entry)
        elif entry.issym():
            _remove(folder, name)
            os.symlink(entry.linkname, name, dir_fd=folder)
        elif entry.islnk():
            _link(root, folder, name, path, _path(entry.linkname))
        else:
            raise BadImage(f"{_printable(path)} is no file, folder or link: a device or a pipe is not made")


@contextmanager
def _said_as_bad(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in OF_THE_DISK:
            raise
        raise BadImage(f"{_printable(path)} can't be made: {error.strerror or error}") from error


def _path(name: str) -> str:
    """Return the path of an entry, from the root; empty for the root itself. Raises BadImage for a step back."""
    parts = PurePosixPath(name.lstrip("/")).parts
    if ".." in parts or len(parts) > DEEPEST or "\0" in name:
        raise BadImage(f"{_printable(name)} is no path in an image")
    return "/".join(parts)


@contextmanager
def _folder(root: int, path: str, *, make: bool = False) -> Iterator[int]:
    """A descriptor of it, as if `root` were the root."""
    try:
        opened = _open(root, path)
    except FileNotFoundError:
        if not make:
            raise
        opened = _open_made(root, path)
    try:
        yield opened
    finally:
        os.close(opened)


def _open(root: int, path: str) -> int:
    return open_resolved(root, path or ".", os.O_RDONLY | os.O_DIRECTORY, 0, IN_ROOT | NO_MAGICLINKS)


def _open_made(root: int, path: str) -> int:
    """The folder, with those above it that are missing. A link to nothing is in the way."""
    at = ""
    for part in path.split("/"):
        with _folder(root, at) as above:
            at = f"{at}/{part}".lstrip("/")
            if _kind(above, part) == 0:
                os.mkdir(part, FOLDER, dir_fd=above)
                os.chmod(part, FOLDER, dir_fd=above)
    return _open(root, at)


def _kind(folder: int, name: str) -> int:
    """Return the kind of what lies there, no link followed; 0 for nothing."""
    try:
        return stat.S_IFMT(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return 0


def _remove(folder: int, name: str) -> None:
    match _kind(folder, name):
        case 0:
            return
        case stat.S_IFDIR:
            shutil.rmtree(name, dir_fd=folder)
        case _:
            os.unlink(name, dir_fd=folder)


def _make_folder(folder: int, name: str) -> None:
    """Kept where it is there already. A link in its place is none."""
    if _kind(folder, name) == stat.S_IFDIR:
        return
    _remove(folder, name)
    os.mkdir(name, FOLDER, dir_fd=folder)
    os.chmod(name, FOLDER, dir_fd=folder)


def _write(folder: int, name: str, tar: tarfile.TarFile, entry: tarfile.TarInfo) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    source = tar.extractfile(entry)
    assert source is not None
    with os.fdopen(os.open(name, flags, FILE, dir_fd=folder), "wb") as file:
        shutil.copyfileobj(source, file, READ_BYTES)
        file.flush()
        os.fchmod(file.fileno(), PROGRAM if entry.mode & 0o111 else FILE)
        when = min(max(0, int(entry.mtime)), LATEST)
        os.utime(file.fileno(), (when, when))


def _link(root: int, folder: int, name: str, path: str, target: str) -> None:
    """A hard link, to a file of the image."""
    if target == path:
        return
    at, _, last = target.rpartition("/")
    with _folder(root, at) as there:
        if _kind(there, last) not in (stat.S_IFREG, stat.S_IFLNK):
            raise BadImage(f"{_printable(path)} is a link to {_printable(target)}, which is no file of the image")
        if _is_one(there, last, folder, name):
            return
        _remove(folder, name)
        os.link(last, name, src_dir_fd=there, dst_dir_fd=folder, follow_symlinks=False)


def _is_one(folder: int, name: str, other: int, of_other: str) -> bool:
    """Tell whether two names are of one file already, maybe by way of a link among their folders."""
    one = os.stat(name, dir_fd=folder, follow_symlinks=False)
    try:
        same = os.stat(of_other, dir_fd=other, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (one.st_dev, one.st_ino) == (same.st_dev, same.st_ino)


def _printable(path: str) -> str:
    return ascii(path[:200])
