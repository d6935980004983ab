"""Files taken out of a workspace that hostile code wrote: none is reached over a link, or outside of it."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Mapping, Sequence
from typing import NamedTuple

OPENAT2 = 437
"""The same number on every architecture."""
NO_XDEV, NO_MAGICLINKS, NO_SYMLINKS, BENEATH, IN_ROOT = 0x01, 0x02, 0x04, 0x08, 0x10

_libc = ctypes.CDLL(None, use_errno=True)


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
    """By openat2. Raises OSError."""
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
