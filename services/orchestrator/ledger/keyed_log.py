"""A log with one line for each key, and an index over it: which keys are known, and what there is of a task.

The log is the truth; the index is a cache over it, caught up at `open` and after any trouble, built again from the
beginning where it is broken or gone. What may be logged is decided by whoever adds it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Generic, Protocol, Self, TypedDict, TypeVar

from ratchet.concurrency.keyed import KeyedLock
from ratchet.files.sqlite_files import unlink_database
from ratchet.logs.journal import Journal
from ratchet.logs.leadership import UNFENCED, Fence
from ratchet.logs.names import file_name
from ratchet.logs.quarantine import BadLine, Quarantine
from ratchet.logs.reader import read
from ratchet.logs.segments import oldest_position
from ratchet.service.errors import JournalError, StorageUnavailable
from ratchet.service.telemetry import Log
from schemas.messages.base import DecodeError

SCHEMA = """
CREATE TABLE IF NOT EXISTS lines (
    position INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, task_id TEXT NOT NULL, line BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS line_of_task ON lines (task_id);
"""

FORGET = "DELETE FROM lines WHERE position IN (SELECT position FROM lines WHERE position < ? LIMIT ?)"
FORGET_AT_ONCE = 2_000

log = Log("keyed-log")


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


class KeyedLogSettings(TypedDict):
    segment_bytes: int
    index_dir: Path | None
    fence: Fence


class KeyedLog(Generic[Line]):
    """The only writer of a folder's log of that name: whoever opens one leads the folder. For one event loop."""

    LOG: ClassVar[str]
    INDEX: ClassVar[str]
    RECORD: type[Line]

    def __init__(
        self,
        folder: Path,
        *,
        segment_bytes: int,
        index_dir: Path | None = None,
        fence: Fence = UNFENCED,
        seals: Path | None = None,
    ) -> None:
        """`index_dir`, `fence`, `seals`: as of the Ledger."""
        self._folder = folder
        self._index_path = (index_dir or folder) / self.INDEX
        self._fence = fence
        self._segment_bytes = segment_bytes
        self._seals = seals
        self._journal: Journal
        self._db: sqlite3.Connection
        self._broken = False
        self._locks = KeyedLock()

    async def open(self) -> None:
        """Repair the log's tail and bring the index up to it. Raises JournalError."""
        await asyncio.to_thread(self._open)

    async def close(self) -> None:
        await self._journal.close()
        self._db.close()

    async def check_storage(self) -> None:
        """Raises StorageUnavailable while the disk does not take the log's lines."""
        await self._journal.check()

    async def add(self, line: Line) -> Line:
        """The line, once it is on disk; or the one logged before under the same id. Not to be cancelled.

        Raises JournalError.
        """
        async with self._locks.of(line.key):
            if (known := self.find(line.key)) is not None:
                return known
            body = self._journal.stamped(line.encode())
            self._index(await self._journal.append([body]), line, body)
        return line

    async def forget(self, begin: int) -> None:
        """The index forgets what was removed from the log before that position, a little at a time."""
        removed = FORGET_AT_ONCE
        while removed == FORGET_AT_ONCE:
            with self._using() as db:
                removed = db.execute(FORGET, (begin, FORGET_AT_ONCE)).rowcount
            await asyncio.sleep(0)

    def newest(self, count: int) -> list[Line]:
        """The newest lines, oldest first."""
        with self._using() as db:
            rows = db.execute("SELECT line FROM lines ORDER BY position DESC LIMIT ?", (count,)).fetchall()
        return [self.RECORD.decode(line) for (line,) in reversed(rows)]

    @property
    def end(self) -> int:
        """The byte at which the next line will begin."""
        return self._journal.end

    def find(self, key: str) -> Line | None:
        with self._using() as db:
            row = db.execute("SELECT line FROM lines WHERE key = ?", (key,)).fetchone()
        return self.RECORD.decode(row[0]) if row else None

    def of_task(self, task_id: str) -> list[Line]:
        """In the order it came."""
        with self._using() as db:
            rows = db.execute("SELECT line FROM lines WHERE task_id = ? ORDER BY position", (task_id,)).fetchall()
        return [self.RECORD.decode(line) for (line,) in rows]

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        """Raises StorageUnavailable while the index can't be used."""
        try:
            yield self._usable()
        except sqlite3.Error as error:
            self._broken = True
            raise StorageUnavailable(f"{self._index_path} can't be used now: {error}") from error

    def _index(self, position: int, line: Line, body: bytes) -> None:
        """The line is in the log, so a failing index loses nothing: it is caught up before it is used again.

        Until then nothing is put behind what is missing: catching up begins behind the last line it has.
        """
        try:
            if not self._broken:
                self._put(position, line, body)
        except sqlite3.Error as error:
            self._broken = True
            log.error("index-broken", f"{self.INDEX} can't be written ({error}): it is caught up from the log")

    def _put(self, position: int, line: Line, body: bytes) -> None:
        self._db.execute("INSERT OR IGNORE INTO lines VALUES (?, ?, ?, ?)", (position, line.key, line.task_id, body))

    def _usable(self) -> sqlite3.Connection:
        if self._broken:
            with suppress(sqlite3.Error):
                self._db.close()
            try:
                self._open_index()
            except sqlite3.Error as error:
                what = f"{self._index_path} can't be written ({error}): free some disk"
                raise StorageUnavailable(what) from None
            self._broken = False
        return self._db

    def _open(self) -> None:
        self._index_path.parent.mkdir(parents=True, exist_ok=True)
        self._journal = Journal.open(
            self._folder,
            self.LOG,
            max_segment_bytes=self._segment_bytes,
            fence=self._fence,
            seals=self._seals,
        )
        try:
            self._open_index()
        except (sqlite3.DatabaseError, JournalError) as error:
            log.warning("index-rebuilt", f"{error}: {self.INDEX} is built again from the log")
            self._delete_index()
            self._open_index()

    def _open_index(self) -> None:
        self._db = sqlite3.connect(self._index_path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.executescript(SCHEMA)
        end = self._db.execute("SELECT max(position + length(line) + 1) FROM lines").fetchone()[0]
        if end is not None and end > self._journal.end:
            raise JournalError(f"{self.INDEX} knows more than its log, which ends at byte {self._journal.end}")
        self._catch_up(oldest_position(self._folder, self.LOG) if end is None else end)

    def _catch_up(self, start: int) -> None:
        quarantine = Quarantine(self._folder)
        self._db.execute("BEGIN")
        for line in read(self._folder, self.LOG, start, on_bad=quarantine):
            try:
                self._put(line.position, self.RECORD.decode(line.data), line.data)
            except DecodeError as error:
                quarantine(BadLine(file_name(self.LOG), line.position, error.reason, line.data))
        self._db.execute("COMMIT")

    def _delete_index(self) -> None:
        with suppress(AttributeError, sqlite3.Error):
            self._db.close()
        unlink_database(self._index_path)
