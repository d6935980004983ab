"""A workspace that is an archive: .tar.gz or .zip, unpacked in memory and within bounds. Pure.

Refused whole: absolute paths and `..`, links that lead out, devices, what is encrypted, what unpacks to too much.
"""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import zipfile
import zlib
from itertools import count
from posixpath import dirname, join, normpath

from workbench.sandbox.job import TreeFile
from workbench.trees import Bounds, Tree, check_path, check_tree, printable
from workbench.workspaces.errors import WorkspaceError

GZIP, ZIP = b"\x1f\x8b", b"PK"
ENTRY = b"PK\x01\x02"
"""The bytes that each entry of a zip's directory begins with."""
OVERHEAD = 2048
"""Bytes of a tar beside those of a file, for each file."""
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError)


def unpack_archive(archive: bytes, bounds: Bounds) -> Tree:
    """Raises WorkspaceError."""
    try:
        if archive.startswith(GZIP):
            return check_tree(_of_tar(archive, bounds), bounds)
        if archive.startswith(ZIP):
            return check_tree(_of_zip(archive, bounds), bounds)
    except BROKEN as error:
        raise WorkspaceError(f"the archive can't be unpacked: {error}") from error
    raise WorkspaceError("the archive is neither a .tar.gz nor a .zip")


class _Bounded(io.RawIOBase):
    """Reads no further than to so many bytes, whatever they were packed into."""

    def __init__(self, file: gzip.GzipFile, most: int) -> None:
        self._file, self._left = file, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        part = self._file.read(min(len(buffer), 65_536))
        self._left -= len(part)
        if self._left < 0:
            raise WorkspaceError("the archive unpacks to more than a workspace may have")
        buffer[: len(part)] = part
        return len(part)


def _of_tar(archive: bytes, bounds: Bounds) -> dict[str, TreeFile]:
    found = dict[str, TreeFile]()
    most = bounds.bytes + OVERHEAD * (bounds.files + 1)
    with gzip.GzipFile(fileobj=io.BytesIO(archive)) as packed:
        stream = io.BufferedReader(_Bounded(packed, most), 65_536)
        with tarfile.open(fileobj=stream, mode="r|", encoding="utf-8", errors="surrogateescape") as tar:
            for number in count():
                if (member := tar.next()) is None:
                    break
                if number >= 2 * bounds.files:
                    raise WorkspaceError(f"the archive has more than {bounds.files:,} files")
                if member.isdir():
                    continue
                _put(found, member.name, _of_member(tar, member, found), bounds)
    return found


def _of_member(tar: tarfile.TarFile, member: tarfile.TarInfo, found: dict[str, TreeFile]) -> TreeFile:
    if member.isreg() and not member.issparse():  # a hole of a terabyte takes a hundred bytes
        file = tar.extractfile(member)
        assert file is not None
        return TreeFile(file.read(), executable=bool(member.mode & stat.S_IXUSR))
    if member.issym():
        return _link(member.name, member.linkname)
    if member.islnk() and (linked := found.get(_plain(member.linkname))) is not None:
        return linked
    raise WorkspaceError(f"the archive holds {printable(member.name)!r}, which is no file, folder or link inside it")


def _of_zip(archive: bytes, bounds: Bounds) -> dict[str, TreeFile]:
    if archive.count(ENTRY) > 2 * bounds.files:
        raise WorkspaceError(f"the archive has more than {bounds.files:,} files")
    found, room = dict[str, TreeFile](), bounds.bytes
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:
        for entry in packed.infolist():
            if entry.is_dir():
                continue
            if entry.flag_bits & 1 or entry.compress_type not in METHODS:
                raise WorkspaceError(
                    f"{printable(entry.filename)!r} in the archive is encrypted, or packed in a rare way"
                )
            with packed.open(entry) as file:
                content = file.read(room + 1)
            room -= len(content)
            if room < 0:
                raise WorkspaceError("the archive unpacks to more than a workspace may have")
            _put(found, entry.filename, _of_entry(entry, content), bounds)
    return found


def _of_entry(entry: zipfile.ZipInfo, content: bytes) -> TreeFile:
    mode = entry.external_attr >> 16
    if stat.S_ISLNK(mode):
        return _link(entry.filename, content.decode("utf-8", "surrogateescape"))
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        raise WorkspaceError(
            f"the archive holds {printable(entry.filename)!r}, which is no file, folder or link inside it"
        )
    return TreeFile(content, executable=bool(mode & stat.S_IXUSR))


def _link(name: str, target: str) -> TreeFile:
    place = normpath(join(dirname(_plain(name)), target))
    if target.startswith("/") or place == ".." or place.startswith("../"):
        raise WorkspaceError(f"the link {printable(name)!r} leads out of the archive")
    return TreeFile(target.encode("utf-8", "surrogateescape"), is_link=True)


def _put(found: dict[str, TreeFile], name: str, file: TreeFile, bounds: Bounds) -> None:
    found[_plain(name)] = file
    if len(found) > bounds.files:
        raise WorkspaceError(f"the archive has more than {bounds.files:,} files")


def _plain(name: str) -> str:
    return check_path(name.removeprefix("./"))
