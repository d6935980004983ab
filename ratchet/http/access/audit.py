"""The audit: one line for every change and every refusal, chained, so that what was taken out or altered is found.

A line says when, who, from where, which route and how it ended; never a token and never a body. Each process of a
service writes a folder of its own, `<audit>/<service>/`, or `<service>-2` and so on where that one is in use; the
folder's lock sees to it. Of each the newest gigabyte is kept, which takes a tenth of that on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from ratchet.files.append_file import explain
from ratchet.files.folder_lock import FolderLock
from ratchet.files.hash_chain import Link, chain_line, follow
from ratchet.logs.journal import Journal
from ratchet.logs.reader import Line, LogReader, tail_position
from ratchet.logs.retention.contents import keep_newest
from ratchet.service.errors import JournalError
from ratchet.service.telemetry import Log

NAME = "audit"
SCHEMA = "audit.v1"
SEGMENT_BYTES = 16 * 1024 * 1024
KEPT_SEGMENTS = 64
NOTED_WITHIN_S = 0.05
"""Seconds that a noted entry waits for others: each sync slows down those of the logs of tasks."""

log = Log("audit")

Entry = Mapping[str, Any]


class _Open(NamedTuple):
    lock: FolderLock
    journal: Journal
    last: Link


class AuditLog:
    """Opened with the first entry. Use it from one event loop."""

    def __init__(
        self, folder: Path, service: str, *, segment_bytes: int = SEGMENT_BYTES, kept_segments: int = KEPT_SEGMENTS
    ) -> None:
        self._folder = folder
        self._service = service
        self._segment_bytes = segment_bytes
        self._kept_segments = kept_segments
        self._file: _Open | None = None
        self._waiting: list[tuple[Entry, asyncio.Future[int]]] = []
        self._writer: asyncio.Task[None] | None = None
        self._soon: asyncio.TimerHandle | None = None
        self._trouble: str | None = None

    async def record(self, entry: Entry) -> int:
        """Its number, once it is on disk. Raises DiskFull and JournalError: it is not in the audit then."""
        written = self._put(entry)
        self._write_now()
        return await written

    def note(self, entry: Entry) -> None:
        """Write the entry soon. Should that fail, it is an error in the service's log, and `trouble`."""
        self._put(entry).add_done_callback(self._log_failed_write)
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(NOTED_WITHIN_S, self._write_now)

    def trouble(self) -> str | None:
        """Return why the last entry could not be written; None once one could."""
        return self._trouble

    @property
    def head(self) -> Link | None:
        """The newest line that is on disk; None before the first entry."""
        return self._file.last if self._file is not None else None

    @property
    def folder(self) -> Path:
        """Return the folder it writes to, which is known with the first entry."""
        return self._file.journal.folder if self._file is not None else self._folder

    async def close(self) -> None:
        """Write what waits, and close the log."""
        self._write_now()
        if self._writer is not None:
            await asyncio.wait([self._writer])
        if self._file is not None:
            file, self._file = self._file, None
            await file.journal.close()
            file.lock.release()

    def _put(self, entry: Entry) -> asyncio.Future[int]:
        written: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._waiting.append(({"schema_version": SCHEMA, "at": at, "service": self._service, **entry}, written))
        return written

    def _write_now(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._waiting and (self._writer is None or self._writer.done()):
            self._writer = asyncio.create_task(self._write_waiting())

    async def _write_waiting(self) -> None:
        """Write all waiting lines at once. Lines that come while these are synced go together in the next write."""
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                numbers = await self._write([entry for entry, _ in batch])
            except Exception as error:  # whatever it is: nobody is left waiting
                self._trouble = str(error)
                for _, written in batch:
                    if not written.done():
                        written.set_exception(error)
                continue
            self._trouble = None
            for (_, written), number in zip(batch, numbers, strict=True):
                if not written.done():
                    written.set_result(number)

    async def _write(self, entries: list[Entry]) -> list[int]:
        if self._file is None:
            self._file = await asyncio.to_thread(self._open)
        link, lines = self._file.last, []
        for entry in entries:
            link, line = chain_line(link, entry)
            lines.append(line)
        begin = self._file.journal.begin
        await self._file.journal.append(lines)
        if self._file.journal.begin != begin:
            await asyncio.to_thread(self._trim, self._file.journal.folder)
        first = self._file.last.sequence + 1
        self._file = self._file._replace(last=link)
        return list(range(first, first + len(lines)))

    def _trim(self, folder: Path) -> None:
        """Remove old segments. A removal that fails is tried again when the next segment is sealed."""
        try:
            keep_newest(folder, NAME, self._kept_segments)
        except JournalError as error:
            log.error("not-trimmed", f"old segments of the audit stay: {error}")

    def _open(self) -> _Open:
        """Blocks. Raises DiskFull, JournalError."""
        lock = self._own_folder()
        try:
            journal = Journal.open(lock.path.parent, NAME, max_segment_bytes=self._segment_bytes)
            last = last_link(lock.path.parent)
        except BaseException:
            lock.release()
            raise
        log.info("audit-opened", f"{journal.path} goes on", sequence=last.sequence, sha256=last.sha256)
        return _Open(lock, journal, last)

    def _own_folder(self) -> FolderLock:
        for number in count(1):
            lock = FolderLock(self._folder / (self._service if number == 1 else f"{self._service}-{number}"))
            try:
                if lock.try_acquire():
                    return lock
            except OSError as error:
                raise explain(error, lock.path) from None
        raise AssertionError

    def _log_failed_write(self, written: asyncio.Future[int]) -> None:
        if not written.cancelled() and (error := written.exception()):
            log.error("not-audited", f"an entry of the audit could not be written: {error}")


def last_link(folder: Path) -> Link:
    """Return the link of the newest line. Raises JournalError if it is no line of a chain."""
    line = None
    for line in LogReader(folder, NAME, tail_position(folder, NAME, 1)).whole_lines():  # noqa: B007
        pass
    if line is None:
        return Link()
    try:
        return follow(None, line.data)[0]
    except ValueError as error:
        raise JournalError(
            f"the last line of {folder / NAME}.jsonl was changed: {error}. Keep the folder aside as evidence (rename "
            f"it), and a new audit begins"
        ) from None


def read_audit(folder: Path) -> Iterator[tuple[Line, dict[str, Any]]]:
    """Every line of one process's folder, checked against the one before, the oldest first.

    The oldest line there is may follow one that retention has removed. Raises JournalError naming the first line that
    is not what was written.
    """
    before: Link | None = None
    for line in LogReader(folder, NAME).whole_lines():
        try:
            before, fields = follow(before, line.data)
        except ValueError as error:
            where = f"{folder / NAME}.jsonl, the line from byte {line.position:,} of the log"
            raise JournalError(f"{where} was changed after it was written: {error}") from None
        yield line, fields
