"""A log with one line for each key, and an index over it: which keys are known, and what there is of a task.

What may be logged is decided by whoever adds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Generic, Protocol, Self, TypeVar, Unpack

from ratchet.concurrency.keyed import KeyedLock
from ratchet.logs.names import file_name
from ratchet.logs.quarantine import BadLine, Quarantine
from ratchet.logs.segments import Position, oldest_position
from ratchet.service.errors import JournalError, Reject
from schemas.messages.base import DecodeError
from services.orchestrator.ledger.indexed_log import Index, IndexedLog, LogSettings, lines_before

FORGET_AT_ONCE = 2_000


class IdUsedBefore(Reject):
    """The key of a line comes again, and says something else."""

    problem = 409, "Id used before", "id-used"


class KeyedLine(Protocol):
    """A record with a key of its own, about a task."""

    @property
    def key(self) -> str: ...
    @property
    def task_id(self) -> str: ...
    def encode(self) -> bytes: ...
    @classmethod
    def decode(cls, body: bytes | str) -> Self: ...


Line = TypeVar("Line", bound=KeyedLine)


class LineIndex(Index):
    """The table of lines, each with its key and its task."""

    SCHEMA = """
CREATE TABLE IF NOT EXISTS lines (
    position INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, task_id TEXT NOT NULL, line BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS line_of_task ON lines (task_id);
"""

    def put(self, position: Position, line: KeyedLine, body: bytes) -> None:
        """Add a line, unless there is one with its key."""
        self.change("INSERT OR IGNORE INTO lines VALUES (?, ?, ?, ?)", position, line.key, line.task_id, body)

    def end(self) -> Position:
        """The byte behind its last line; 0 where it has none."""
        row = self.row("SELECT position + length(line) + 1 FROM lines ORDER BY position DESC LIMIT 1")
        return int(row[0]) if row else 0


class KeyedLog(IndexedLog[LineIndex], Generic[Line]):
    """The only writer of a folder's log of that name."""

    LOG: ClassVar[str]
    RECORD: type[Line]

    def __init__(self, folder: Path, **given: Unpack[LogSettings]) -> None:
        super().__init__(folder, (self.LOG,), f"{self.LOG}.sqlite", **given)
        self._locks = KeyedLock()

    async def add(self, line: Line) -> Line:
        """The line, once it is on disk; or the one logged before under the same id. Not to be cancelled.

        Raises JournalError.
        """
        async with self._locks.of(line.key):
            if (known := self.find(line.key)) is not None:
                return known
            body = self._journals[self.LOG].stamp(line.encode())

            def apply(position: Position) -> None:
                self._index.put(position, line, body)
                self._index.commit()  # at once: a transaction that has changed something keeps others out

            await self._append(self.LOG, [body], apply)
        return line

    async def forget(self, begin: Position) -> None:
        """The index forgets what was removed from the log before that position, a little at a time."""
        removed = FORGET_AT_ONCE
        while removed == FORGET_AT_ONCE:
            removed = self.index.change(
                "DELETE FROM lines WHERE position IN (SELECT position FROM lines WHERE position < ? LIMIT ?)",
                begin,
                FORGET_AT_ONCE,
            )
            self.commit()
            await asyncio.sleep(0)

    @property
    def end(self) -> Position:
        """The byte at which the next line will begin."""
        return self._journals[self.LOG].end

    def newest(self, count: int) -> list[Line]:
        """The newest lines, oldest first."""
        return self._lines("ORDER BY position DESC LIMIT ?", count)[::-1]

    def find(self, key: str) -> Line | None:
        """The line with this key. Raises StorageUnavailable while the index can't be used."""
        return next(iter(self._lines("WHERE key = ?", key)), None)

    def of_task(self, task_id: str) -> list[Line]:
        """The lines about a task, in the order they came."""
        return self._lines("WHERE task_id = ? ORDER BY position", task_id)

    def _lines(self, which: str, *parameters: object) -> list[Line]:
        return [self.RECORD.decode(line) for (line,) in self.index.rows(f"SELECT line FROM lines {which}", *parameters)]

    def _make_index(self, path: Path) -> LineIndex:
        return LineIndex(path, self._fence.epoch or 0)

    def _catch_up(self, index: LineIndex, ends: Mapping[str, Position]) -> Mapping[str, Position]:
        quarantine = Quarantine(self.folder)
        start, end = index.end() or oldest_position(self.folder, self.LOG), ends[self.LOG]
        if start > end:
            raise JournalError(f"{index.path.name} knows more than its log, which ends at byte {end}")
        for line in lines_before(self.folder, self.LOG, start, end, quarantine):
            try:
                index.put(line.position, self.RECORD.decode(line.data), line.data)
            except DecodeError as error:
                quarantine(BadLine(file_name(self.LOG), line.position, error.reason, line.data))
        return ends
