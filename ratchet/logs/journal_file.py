"""The active file of a log and where it stands in it: repair at open, sealing when full, falling back after an error.

Every call blocks. Group commit is not here, nor compression.

After any error the file is closed, opened again, cut back to its last acknowledged byte and compared with what was
acknowledged: after a failed fsync the kernel may take pages for clean that never reached the disk, so nothing of the
old state is trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ratchet.files.append_file import AppendFile, explain
from ratchet.files.atomic_file import sync_folder
from ratchet.logs.leadership import UNFENCED, Fence
from ratchet.logs.names import active_path
from ratchet.logs.quarantine import BadLine, Quarantine
from ratchet.logs.seals import Sealer
from ratchet.logs.segments import Position, seal, sealed_end, sealed_segments, tidy
from ratchet.service.errors import JournalError, StorageUnavailable
from ratchet.service.failpoint import reach
from ratchet.service.telemetry import Log

TAIL_BYTES = 4096
"""Bytes of the acknowledged end that are compared with the disk after an error: at least the last page."""
SCAN_BYTES = 1024 * 1024

log = Log(__name__)


class JournalFile:
    """Used by one thread at a time."""

    def __init__(
        self,
        folder: Path,
        name: str,
        max_bytes: int,
        file_type: type[AppendFile] = AppendFile,
        fence: Fence = UNFENCED,
        sealer: Sealer | None = None,
    ) -> None:
        """Raises OSError, DiskFull and JournalError."""
        self.folder = folder
        self.name = name
        self.path = active_path(folder, name)
        self._max_bytes = max_bytes
        self._file_type = file_type
        self._fence = fence
        self._sealer = sealer
        folder.mkdir(parents=True, exist_ok=True)
        tidy(folder, name)
        self.start: Position = sealed_end(sealed_segments(folder, name))
        self.end: Position = self.start
        self._tail = b""
        self._sealed = False
        self._file: AppendFile | None = None
        with fence.changing():
            self._file = self._open(self._repair, create=True)
            if sealer is not None:
                sealer.begin(self.start, self.end, self._file.read)
            if fence.must_seal:
                self._begin_anew()

    def append(self, data: bytes) -> Position:
        """Position of the data, which is now on disk. Raises DiskFull, JournalError: it is not in the log then.

        LeadershipLost: another may have found it in the log or not; nobody is to be told that it is.
        """
        self._fence.check()
        try:
            if self.start < self.end and self.end - self.start + len(data) > self._max_bytes:
                self._seal()
            file = self._usable()
            file.append(data)
            reach("written")
            file.sync()
            reach("fsynced")
        except OSError as error:
            self._fall_back()
            raise explain(error, self.path) from error
        try:
            self._fence.check()
        except StorageUnavailable:
            self._close_file()  # whoever may still write opens it anew, and cuts off what nobody is told of
            raise
        position, self.end = self.end, self.end + len(data)
        self._tail = (self._tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]
        if self._sealer is not None:
            self._sealer.append(data, self.end)
        return position

    def seal(self) -> None:
        """Begin a new file, unless this one is empty. Raises DiskFull, JournalError: it goes on with the old one."""
        try:
            if self.start < self.end:
                self._seal()
        except OSError as error:
            self._fall_back()
            raise explain(error, self.path) from error

    def probe(self, size: int) -> None:
        """Append so many bytes without a newline, which no reader takes for a line, and cut them off again.

        Raises as `append`.
        """
        try:
            file = self._usable()
            file.append(b" " * size)
            file.sync()
            file.cut(self.end - self.start)
        except OSError as error:
            self._fall_back()
            raise explain(error, self.path) from error

    def take_sealed(self) -> bool:
        """Tell whether a segment was sealed since the last call."""
        sealed, self._sealed = self._sealed, False
        return sealed

    def close(self) -> None:
        self._close_file()
        if self._sealer is not None:
            self._sealer.close()

    def _close_file(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _seal(self) -> None:
        """Begins a new file before the data that would make this one too big: no line is split over two segments."""
        self._usable()
        self._close_file()
        with self._fence.changing():
            seal(self.folder, self.name, self.start, self.end)
        if self._sealer is not None:
            self._sealer.seal(self.start, self.end)
        self.start, self._tail, self._sealed = self.end, b"", True

    def _begin_anew(self) -> None:
        """Begin a new active file. A process that still has the old one open appends behind the end of a segment from
        now on, or to no file at all.

        Call it within `changing`.
        """
        self._close_file()
        if self.start < self.end:
            seal(self.folder, self.name, self.start, self.end)
            if self._sealer is not None:
                self._sealer.seal(self.start, self.end)
        else:
            self.path.unlink()
        self.start, self._tail, self._sealed = self.end, b"", True
        self._file = self._open(self._restore, create=True)

    def _usable(self) -> AppendFile:
        """The active file, certain to be the one in the folder, with nothing in it but what was acknowledged."""
        size = self.end - self.start
        if self._file is None:
            with self._fence.changing():
                self._file = self._open(self._restore, create=size == 0)
        if not self._file.is_untouched(size):
            self._fence.check()
            raise StorageUnavailable(
                f"{self.path} was moved, removed, cut or written to by another program while this one writes it. Stop "
                f"that program, copy what this one wrote from {self._file.where()} back to {self.path}, and restart"
            )
        return self._file

    def _fall_back(self) -> None:
        """Cut back at once, so that readers do not see for long what was not acknowledged; failing that, next time."""
        try:
            self._close_file()
            self._usable()
        except (OSError, JournalError) as error:
            log.error("cut-back-failed", f"{self.path} is cut back before the next append: {error}", exc_info=error)

    def _open(self, prepare: Callable[[AppendFile], None], *, create: bool) -> AppendFile:
        try:
            file = self._file_type(self.path, create=create)
        except FileNotFoundError:
            raise self._damage_error() from None
        try:
            prepare(file)
        except BaseException:
            file.close()
            raise
        return file

    def _restore(self, file: AppendFile) -> None:
        """Back to what was acknowledged; the cut also makes the kernel write the last page again."""
        size = self.end - self.start
        if file.size < size:
            raise self._damage_error()
        file.cut(size)
        file.sync()
        sync_folder(self.folder)
        file.forget_cache()
        if file.read(size - len(self._tail), len(self._tail)) != self._tail:
            raise self._damage_error()

    def _repair(self, file: AppendFile) -> None:
        """Cuts off a torn last line, into quarantine. Syncs first: a crash may have left whole lines unsynced."""
        file.sync()
        sync_folder(self.folder)
        file.forget_cache()
        size = end_of_last_line(file)
        if torn := file.read(size, file.size - size):
            bad = BadLine(self.path.name, self.start + size, "torn: the log ended within this line", torn)
            Quarantine(self.folder)(bad)
            file.cut(size)
            file.sync()
            log.warning("repaired", f"{self.path} ended within a line, now in quarantine", bytes=len(torn))
        self.end = self.start + size
        self._tail = file.read(max(0, size - TAIL_BYTES), TAIL_BYTES)

    def _damage_error(self) -> StorageUnavailable:
        return StorageUnavailable(
            f"{self.path} no longer holds what was acknowledged: its first {self.end - self.start:,} bytes are damaged "
            f"or missing after an error. Check the disk (dmesg, fsck), restore the file from a copy, and restart"
        )


def end_of_last_line(file: AppendFile) -> int:
    """Offset after the last newline, 0 if there is none. Reads backwards, only as far as it must."""
    end = file.size
    while end > 0:
        begin = max(0, end - SCAN_BYTES)
        if (found := file.read(begin, end - begin).rfind(b"\n")) >= 0:
            return begin + found + 1
        end = begin
    return 0
