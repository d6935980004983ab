"""Which tasks are known, open or closed, and with which Result: a cache over the two logs, in a file, so that a year of
tasks costs no memory.

It is current up to one byte of each log, which it stores with what it knows, in one transaction; what a kill cut off is
read again from the logs. It never runs ahead of them. The tasks of the last moments are in memory (`write_buffer.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ratchet.logs.retention import removed_ids as forgotten
from ratchet.logs.start_offset import LogStartOffsets
from ratchet.service.errors import JournalError
from schemas.messages.result import ResultStatus
from services.orchestrator.ledger.write_buffer import BufferedTask, WriteBuffer

SCHEMA_VERSION = 2
CACHE_KIB = 8192
"""Pages SQLite keeps in memory. What it reads beyond them lies in the page cache of the kernel."""
FORGET_AT_ONCE = 2_000
"""Tasks that are forgotten in one step: messages wait meanwhile."""
FORGOTTEN_IDS = "forgotten.ids"
FORGOTTEN_SEQUENCE = "forgotten.sequence"
"""Names among the positions: how many ids of removed tasks are known here, and below which number tasks are removed."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS tasks (
    sequence INTEGER PRIMARY KEY,
    task_id TEXT NOT NULL UNIQUE,
    deadline REAL NOT NULL,
    logged INTEGER NOT NULL DEFAULT 0,
    work BLOB,
    result BLOB,
    line INTEGER,
    lines INTEGER,
    ended INTEGER
);
CREATE INDEX IF NOT EXISTS open_tasks ON tasks (deadline) WHERE result IS NULL;
CREATE INDEX IF NOT EXISTS unanswered_tasks ON tasks (ended) WHERE ended > 0;
CREATE TABLE IF NOT EXISTS waiters (
    task_id TEXT NOT NULL, reply_to TEXT NOT NULL, correlation_id TEXT, UNIQUE (task_id, reply_to, correlation_id)
);
CREATE TABLE IF NOT EXISTS kept (task_id TEXT PRIMARY KEY, response BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, note BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS positions (log TEXT PRIMARY KEY, position INTEGER NOT NULL);
"""


class Entry(NamedTuple):
    """What is known of one task."""

    sequence: int
    task_id: str
    logged: int
    """How many of its samples are in the log."""
    work: bytes | None
    """The Work, while the task is open, or closed without an answer and its user not yet told."""
    result: bytes | None
    """The Result, once it is closed."""
    line: int | None = None
    """Where its line is in the log of assignments."""
    lines: int | None = None
    """Where its lines begin in the log of interactions, once it is closed."""


ENDINGS = {"ok": 0, "failed": 1, "expired": 2}
"""The column `ended`; null while the task is open."""
ENTRY = "sequence, task_id, logged, work, result, line, lines"
INSERT = "INSERT OR IGNORE INTO tasks (sequence, task_id, deadline, logged, work, result, line, lines, ended) "
CHANGE = (
    "UPDATE tasks SET logged = max(logged, ?), result = coalesce(result, ?), lines = ?, ended = coalesce(ended, ?), "
    "work = ? WHERE sequence = ?"
)


class TaskIndex:
    """One connection, used by one thread at a time. Changes are visible to it at once and durable at `commit`."""

    def __init__(self, path: Path) -> None:
        """Opens or creates it. Raises JournalError for a file that is not an index of this version."""
        self.forget_at_once = FORGET_AT_ONCE
        self._young = WriteBuffer()
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            self._prepare()
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise JournalError(f"the index {path} can't be read ({error}); it is only a cache, delete it") from None

    def _prepare(self) -> None:
        execute = self._db.execute
        version = execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, SCHEMA_VERSION):
            raise sqlite3.DatabaseError(f"it has version {version}, this orchestrator knows {SCHEMA_VERSION}")
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = NORMAL")
        execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._db.executescript(SCHEMA)
        execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        execute("BEGIN")
        self._awaited = {task_id for (task_id,) in execute("SELECT DISTINCT task_id FROM waiters")}
        self._kept = {task_id for (task_id,) in execute("SELECT task_id FROM kept")}
        tables = execute("SELECT name FROM sqlite_master WHERE name GLOB 'forgotten_*'").fetchall()
        self._forgotten_below = self.position(FORGOTTEN_SEQUENCE)
        self._forgotten = {name: int(name.removeprefix("forgotten_")) for (name,) in tables}

    def follow(self, folder: Path, floor: LogStartOffsets) -> bool:
        """Forget, a part at each call, the tasks that were removed from the logs. True when there is no more to forget.

        Until then, and after, such a task is known: as it was, or as forgotten. Raises JournalError.
        """
        known = max(self.position(FORGOTTEN_IDS), forgotten.oldest(floor.ids))
        if known < floor.ids:
            sums = forgotten.read(folder, known, min(self.forget_at_once, floor.ids - known))
            table = self._table_of(known // forgotten.PER_FILE)
            self._db.executemany(f"INSERT OR IGNORE INTO {table} VALUES (?)", ((one,) for one in sums))
            self.set_position(FORGOTTEN_IDS, known + len(sums))
            return False
        self._write_young()
        self._drop_tables_before(forgotten.oldest(floor.ids) // forgotten.PER_FILE)
        self.set_position(FORGOTTEN_SEQUENCE, floor.sequence)
        self._forgotten_below = floor.sequence
        removed = self._db.execute(
            "DELETE FROM tasks WHERE sequence IN "
            "(SELECT sequence FROM tasks WHERE sequence < ? AND result IS NOT NULL LIMIT ?)",
            (floor.sequence, self.forget_at_once),
        )
        return removed.rowcount < self.forget_at_once

    def is_forgotten(self, task_id: str) -> bool:
        """True if the task was removed from the logs: it was closed, and its Result is no longer known."""
        if not self._forgotten:
            return False
        one = forgotten.sum_of(task_id)
        tables = " UNION ALL ".join(f"SELECT sum FROM {table} WHERE sum = ?1" for table in self._forgotten)
        return self._db.execute(tables, (one,)).fetchone() is not None

    def _table_of(self, number: int) -> str:
        table = f"forgotten_{number}"
        if table not in self._forgotten:
            self._db.execute(f"CREATE TABLE IF NOT EXISTS {table} (sum INTEGER PRIMARY KEY)")
            self._forgotten[table] = number
        return table

    def _drop_tables_before(self, number: int) -> None:
        for table, its in list(self._forgotten.items()):
            if its < number:
                self._db.execute(f"DROP TABLE {table}")
                del self._forgotten[table]

    def commit(self) -> None:
        """Make everything so far survive a kill."""
        self._write_young()
        self._db.execute("COMMIT")
        self._db.execute("BEGIN")

    def _write_young(self) -> None:
        new, changes = self._young.unwritten()
        if new:
            self._db.executemany(f"{INSERT} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", new)
        if changes:
            self._db.executemany(CHANGE, changes)
        self._young.written()

    def close(self) -> None:
        """Closed it is in any case; raises sqlite3.Error where what came since the last commit could not be kept."""
        try:
            self._write_young()
            self._db.execute("COMMIT")
        finally:
            self._db.close()

    def position(self, log: str) -> int:
        """Up to which byte of a log the index is current."""
        row = self._db.execute("SELECT position FROM positions WHERE log = ?", (log,)).fetchone()
        return int(row[0]) if row else 0

    def set_position(self, log: str, position: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO positions VALUES (?, ?)", (log, position))

    def next_sequence(self) -> int:
        self._write_young()
        after_known = int(self._db.execute("SELECT coalesce(max(sequence), -1) + 1 FROM tasks").fetchone()[0])
        return max(after_known, self.forgotten_below)

    @property
    def forgotten_below(self) -> int:
        """Tasks with a lower assignment number were removed from the logs."""
        return self._forgotten_below

    def find(self, task_id: str) -> Entry | None:
        young = self._young.find(task_id)
        if young is not None:
            return Entry(young.sequence, young.task_id, young.logged, young.work, young.result, young.line, young.lines)
        row = self._db.execute(f"SELECT {ENTRY} FROM tasks WHERE task_id = ?", (task_id,)).fetchone()
        return Entry(*row) if row else None

    def admit(self, sequence: int, task_id: str, deadline: float, work: bytes, line: int) -> None:
        """As `open`, for a task that `find` did not know."""
        self._young.add(BufferedTask(sequence, task_id, deadline, work, line))
        if self._young.too_many:
            self._write_young()

    def open(self, sequence: int, task_id: str, deadline: float, work: bytes, line: int = 0) -> None:
        """A task was admitted. `deadline` in seconds since the epoch; `line`: where it is in the log of assignments.

        Changes nothing where the task is known.
        """
        self._db.execute(
            "INSERT OR IGNORE INTO tasks (sequence, task_id, deadline, work, line) VALUES (?, ?, ?, ?, ?)",
            (sequence, task_id, deadline, work, line),
        )

    def count_logged(self, task_id: str, logged: int) -> None:
        """Some samples of an open task are in the log: what a kill in the middle of its group left. For catching up."""
        self._db.execute("UPDATE tasks SET logged = max(logged, ?) WHERE task_id = ?", (logged, task_id))

    def settle(self, task_id: str, *, logged: int, result: bytes, lines: int = 0, status: ResultStatus = "ok") -> None:
        """A task is closed; `lines`: where its lines begin. The first Result stays, and only samples may come later.

        With no sample logged its Work stays too, until `forget_work`.
        """
        if self._young.settle(task_id, logged, result, lines, ENDINGS[status]):
            return
        self._db.execute(
            "UPDATE tasks SET logged = max(logged, ?1), result = coalesce(result, ?2), lines = ?4, "
            "ended = coalesce(ended, ?5), work = CASE WHEN ?1 > 0 THEN NULL ELSE work END WHERE task_id = ?3",
            (logged, result, task_id, lines, ENDINGS[status]),
        )

    def forget_work(self, task_id: str) -> None:
        if self._young.forget_work(task_id):
            return
        self._db.execute("UPDATE tasks SET work = NULL WHERE task_id = ?", (task_id,))

    def open_works(self) -> Iterator[bytes]:
        """The Work of every open task, in the order of assignment."""
        self._write_young()
        for (work,) in self._db.execute("SELECT work FROM tasks WHERE result IS NULL ORDER BY sequence"):
            yield work

    def oldest_open_work(self) -> bytes | None:
        """The Work of the open task that was assigned first. Reads the index of open tasks only, as `count` does."""
        self._write_young()
        row = self._db.execute(
            "SELECT work FROM tasks WHERE sequence = "
            "(SELECT min(sequence) FROM tasks INDEXED BY open_tasks WHERE result IS NULL)"
        ).fetchone()
        return row[0] if row else None

    def overdue(self, now: float, limit: int) -> list[Entry]:
        """Open tasks whose deadline passed, the longest overdue first. `now` in seconds since the epoch."""
        self._write_young()
        rows = self._db.execute(
            f"SELECT {ENTRY} FROM tasks WHERE result IS NULL AND deadline < ? ORDER BY deadline LIMIT ?",
            (now, limit),
        )
        return [Entry(*row) for row in rows]

    def count(self) -> tuple[int, int]:
        """Tasks that were ever known, and open ones among them."""
        self._write_young()
        opened = self._db.execute("SELECT count(*) FROM tasks WHERE result IS NULL").fetchone()[0]
        return self.next_sequence(), int(opened)

    def add_waiter(self, task_id: str, reply_to: str, correlation_id: str | None) -> None:
        """One more queue that wants the Result of an open task; durable at once."""
        self._db.execute("INSERT OR IGNORE INTO waiters VALUES (?, ?, ?)", (task_id, reply_to, correlation_id))
        self._awaited.add(task_id)
        self.commit()

    def waiters(self, task_id: str) -> Iterator[tuple[str, str | None]]:
        if task_id in self._awaited:
            yield from self._db.execute("SELECT reply_to, correlation_id FROM waiters WHERE task_id = ?", (task_id,))

    def forget_waiters(self, task_id: str) -> None:
        self._db.execute("DELETE FROM waiters WHERE task_id = ?", (task_id,))
        self._awaited.discard(task_id)

    def keep_response(self, task_id: str, response: bytes) -> None:
        """For the draft-shaped Reward to come; durable at once."""
        self._db.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (task_id, response))
        self._kept.add(task_id)
        self.commit()

    def kept_response(self, task_id: str) -> bytes | None:
        row = self._db.execute("SELECT response FROM kept WHERE task_id = ?", (task_id,)).fetchone()
        return row[0] if row else None

    def forget_response(self, task_id: str) -> None:
        if task_id in self._kept:
            self._db.execute("DELETE FROM kept WHERE task_id = ?", (task_id,))
            self._kept.discard(task_id)

    def note(self, name: str) -> bytes | None:
        """What was written down under a name: it survives a kill, but not the loss of the index."""
        row = self._db.execute("SELECT note FROM notes WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None

    def write_note(self, name: str, note: bytes) -> None:
        self._db.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, note))
