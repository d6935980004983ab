"""An image of a container in one file: what `docker save` writes, or a tar of an OCI layout. Reads, and makes nothing.

The file is known by its sum, and nobody vouches for what is in it: all that is read of it is bounded.
"""

from __future__ import annotations

import gzip
import io
import json
import platform
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from posixpath import dirname, join, normpath
from typing import IO, Any, Protocol, Self

import zstandard

from ratchet.service.errors import RatchetError

MIB = 1024 * 1024
MOST_MEMBERS = 20_000
"""Entries of the file itself: two or three for each layer."""
MOST_JSON = 4 * MIB
MOST_HEADER = MIB
"""Bytes of one entry's long name or extended header, which tarfile reads at once."""
MOST_WINDOW = 128 * MIB
"""Memory that zstandard may take to unpack."""
MOST_LAYERS = 256
READ_AHEAD = 65_536
TOO_MUCH = "it unpacks to more than it may take: say `gigabytes`, if that is meant"
NESTED = 4
GZIP, ZSTANDARD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
UNPACKING = (tarfile.TarError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError, EOFError)
BROKEN = (*UNPACKING, ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""Errors that libraries, and readers of their JSON, raise for malformed bytes."""


class BadImage(RatchetError):
    """An image that can't be used; the sentence says why."""


class Header(tarfile.TarInfo):
    """The header of an entry, refused before what it announces is read into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        long = header.type in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, b"L", b"K")
        if header.size < 0 or (long and header.size > MOST_HEADER):
            raise BadImage(f"an entry has a header of {header.size:,} bytes")
        return header


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """The command that the image declares, empty where it has none. `directory` is where it begins."""

    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str | None = None


class ImageArchive:
    """`layers`: the names of its layers in the file, the lowest first."""

    def __init__(self, file: tarfile.TarFile) -> None:
        self._file = file
        self._members = dict(_members(file))
        config, self.layers = self._of_docker() if "manifest.json" in self._members else self._of_oci()
        if len(self.layers) > MOST_LAYERS:
            raise BadImage(f"it has {len(self.layers):,} layers, more than {MOST_LAYERS}")
        self.config = _config(self._json(config))

    @contextmanager
    def open_layer(self, layer: str) -> Iterator[Readable]:
        """The bytes of its tar, whatever they are packed by."""
        with self._open(layer) as file:
            magic = file.read(4)
            file.seek(0)
            if magic.startswith(GZIP):
                with gzip.GzipFile(fileobj=file) as unpacked:
                    yield unpacked
            elif magic == ZSTANDARD:
                with zstandard.ZstdDecompressor(max_window_size=MOST_WINDOW).stream_reader(
                    file, read_across_frames=True
                ) as unpacked:
                    yield unpacked
            else:
                yield file

    def _of_docker(self) -> tuple[str, Sequence[str]]:
        listed = self._json("manifest.json")
        if len(listed) != 1:
            raise BadImage(f"it holds {len(listed)} images: save one")
        return str(listed[0]["Config"]), [str(one) for one in listed[0]["Layers"]]

    def _of_oci(self) -> tuple[str, Sequence[str]]:
        if "index.json" not in self._members:
            raise BadImage("it is neither what `docker save` writes nor a tar of an OCI layout")
        found = self._json("index.json")
        for _ in range(NESTED):
            if "manifests" not in found:
                return _blob(found["config"]), [_blob(one) for one in found["layers"]]
            found = self._json(_blob(_for_this_machine(found["manifests"])))
        raise BadImage("its index names indexes without end")

    def _json(self, name: str) -> Any:
        with self._open(name) as file:
            content = file.read(MOST_JSON + 1)
        if len(content) > MOST_JSON:
            raise BadImage(f"{name[:200]} has more than {MOST_JSON:,} bytes")
        return json.loads(content)

    def _open(self, name: str) -> IO[bytes]:
        member = self._members.get(normpath(name))
        if member is not None and member.issym():  # so an older Docker writes a layer that is there twice
            member = self._members.get(normpath(join(dirname(member.name), member.linkname)))
        if member is None or not member.isreg() or member.issparse():
            raise BadImage(f"{name[:200]} is not in it")
        file = self._file.extractfile(member)
        assert file is not None
        return file


@contextmanager
def open_image(path: Path) -> Iterator[ImageArchive]:
    """Raises BadImage; OSError where the file can't be read."""
    with path.open("rb") as file:
        if file.read(2) == GZIP:
            raise BadImage("it is packed as a whole: gunzip it, and name it by the sum it then has")
        file.seek(0)
        with said_as_bad():
            tar = tarfile.open(fileobj=file, mode="r:", tarinfo=Header, encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
            archive = ImageArchive(tar)
        yield archive


@contextmanager
def said_as_bad() -> Iterator[None]:
    """Raises BadImage for bytes that are none of what they should be."""
    try:
        yield
    except BROKEN as error:
        raise BadImage(f"it can't be read: {error!r}") from error


def entries(file: Readable, room: Room) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Yield the entries of a layer, in order. Raises BadImage beyond the `room` there is."""
    stream = io.BufferedReader(_Bounded(file, room), READ_AHEAD)
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=Header, encoding="utf-8", errors="surrogateescape") as tar:
        while (entry := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # it keeps them all
            room.entries -= 1
            if room.entries < 0:
                raise BadImage("it has more files than an image may have")
            if entry.size > room.bytes + READ_AHEAD:  # tarfile would look for its end, block by block
                raise BadImage(TOO_MUCH)
            yield tar, entry


@dataclass(slots=True)
class Room:
    """The room that is left of what an image may take."""

    bytes: int
    entries: int


class _Bounded(io.RawIOBase):
    def __init__(self, file: Readable, room: Room) -> None:
        self._file, self._room = file, room

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        part = self._file.read(min(len(buffer), READ_AHEAD))
        self._room.bytes -= len(part)
        if self._room.bytes < 0:
            raise BadImage(TOO_MUCH)
        buffer[: len(part)] = part
        return len(part)


def _members(file: tarfile.TarFile) -> Iterator[tuple[str, tarfile.TarInfo]]:
    for _ in range(MOST_MEMBERS):
        if (member := file.next()) is None:
            return
        yield normpath(member.name), member
    raise BadImage(f"it has more than {MOST_MEMBERS:,} entries")


def _blob(described: Mapping[str, Any]) -> str:
    algorithm, _, digest = str(described["digest"]).partition(":")
    return f"blobs/{algorithm}/{digest}"


def _for_this_machine(listed: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    if len(listed) == 1:
        return listed[0]
    wanted = {"os": "linux", "architecture": MACHINES.get(platform.machine(), platform.machine())}
    found = [one for one in listed if wanted.items() <= dict(one.get("platform") or {}).items()]
    if len(found) != 1:
        raise BadImage(f"{len(found)} of its {len(listed)} images are for {'/'.join(wanted.values())}: save that one")
    return found[0]


def _config(read: Mapping[str, Any]) -> ImageConfig:
    said = read.get("config") or {}
    pairs = (str(one).partition("=") for one in said.get("Env") or ())
    directory = str(said.get("WorkingDir") or "/")
    return ImageConfig(
        command=(*map(str, said.get("Entrypoint") or ()), *map(str, said.get("Cmd") or ())),
        environment={name: value for name, equals, value in pairs if name and equals and "\0" not in name + value},
        directory=None if directory == "/" or not _is_plain(directory) else directory,
    )


def _is_plain(directory: str) -> bool:
    return directory.startswith("/") and "\0" not in directory and ".." not in PurePosixPath(directory).parts
