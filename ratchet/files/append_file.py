"""One file that only grows at its end: whole writes, sync, cut back, and what the disk's errors mean.

It knows no lines, no positions of a log and no event loop; every call blocks.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ratchet.service.errors import DiskFull, JournalError, StorageUnavailable

_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the largest file size allowed here is reached",
}
_OF_THE_PATH = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EEXIST,
        errno.ENOTEMPTY,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.EINVAL,
        errno.EBADF,
    }
)
"""Errors that say something of the path or the call. All others say that the disk below can't be used now."""
_ADVICE = {
    errno.EROFS: "the kernel may have made it so after an error (dmesg): repair it, and mount it for writing",
    errno.ESTALE: "see that the file server is up, and mount it again",
    errno.EACCES: "let the user of this process write there",
    errno.EPERM: "let the user of this process write there",
}

_OF_THE_DISK = frozenset({errno.EIO, errno.EROFS, errno.ESTALE, errno.EREMOTEIO, *_FULL})
"""Errors of the disk, whatever was read or written: another file would have met the same."""


class AppendFile:
    """Holds the file open with O_APPEND. Raises OSError throughout; `explain` turns one into a sentence."""

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0), 0o644)

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def append(self, data: bytes) -> None:
        """One write where the disk allows it. After an OSError a part of the data may be in the file."""
        written = os.write(self._fd, data)
        while written < len(data):  # a short write: the next one succeeds or says why
            written += os.write(self._fd, memoryview(data)[written:])

    def sync(self) -> None:
        """Returns when all that was appended is on disk. After an OSError nothing is known about what is."""
        os.fdatasync(self._fd)

    def cut(self, size: int) -> None:
        """Drop everything from `size` on."""
        os.ftruncate(self._fd, size)

    def read(self, offset: int, size: int) -> bytes:
        """Fewer bytes than `size` only at the end of the file."""
        return os.pread(self._fd, size, offset)

    def forget_cache(self) -> None:
        """The next read comes from the disk, as far as the kernel complies; sync first."""
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def is_untouched(self, size: int) -> bool:
        """False if somebody else moved, replaced, removed, cut or wrote the file since."""
        try:
            seen = self.path.stat()
        except FileNotFoundError:
            return False
        ours = os.fstat(self._fd)
        return (seen.st_ino, seen.st_dev, seen.st_size) == (ours.st_ino, ours.st_dev, size)

    def where(self) -> str:
        """Return a path under which this process reaches the bytes even if the file was removed."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    def close(self) -> None:
        os.close(self._fd)


def explain(error: OSError, path: Path, doing: str = "written") -> JournalError:
    """DiskFull if space would help, StorageUnavailable if the disk must come back, else JournalError.

    It says what happened, to which path, and what to do.
    """
    number = error.errno or 0
    if number in _FULL:
        return DiskFull(
            f"{path} can't grow: {_FULL[number]}{_free(path.parent)}. Nothing acknowledged is lost; free some space, "
            f"and the next append goes on"
        )
    why = f"{path} can't be {doing}: {os.strerror(number) if number else error}. Nothing acknowledged is lost"
    if number in _OF_THE_PATH:
        return JournalError(f"{why}; look at what is there instead. The next append tries again")
    advice = _ADVICE.get(number, "look at the disk (dmesg) and at the folder's mount and permissions")
    return StorageUnavailable(f"{why}; {advice}. It is tried again until it succeeds")


@contextmanager
def explaining(path: Path, doing: str = "written") -> Iterator[None]:
    """Raises for any OSError what `explain` makes of it."""
    try:
        yield
    except OSError as error:
        raise explain(error, path, doing) from error


def unavailable(error: BaseException, path: Path | None = None) -> StorageUnavailable | None:
    """Return what to raise instead of an error that says no more than that a disk can't be used now; else None."""
    if not isinstance(error, OSError) or error.errno not in _OF_THE_DISK:
        return None
    explained = explain(error, path or Path(str(error.filename or "a file")), "read")
    return explained if isinstance(explained, StorageUnavailable) else None


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Raises StorageUnavailable for those OSErrors that say nothing of what is read, only of the disk it lies on."""
    try:
        yield
    except OSError as error:
        if (instead := unavailable(error, path)) is not None:
            raise instead from error
        raise


def check_writable(folder: Path) -> None:
    """Brings a small file to the disk below the folder, and removes it. Blocks; raises as `explain` says."""
    path = folder / ".writable"
    try:
        file = AppendFile(path)
        try:
            file.append(b"x")
            file.sync()
        finally:
            file.close()
        path.unlink()
    except OSError as error:
        raise explain(error, path) from error


def _free(folder: Path) -> str:
    try:
        disk = shutil.disk_usage(folder)
    except OSError:
        return ""
    return f" ({disk.free / 2**20:,.1f} of {disk.total / 2**20:,.1f} MiB free)"
