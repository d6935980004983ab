"""Which tasks are known, open or closed, and with which Result: a cache over the two logs, in a file, so that a year of
tasks costs no memory.

It is current up to one byte of each log, which it stores with what it knows, in one transaction; what a kill cut off is
read again from the logs. It never runs ahead of them. The tasks of the last moments are in memory (`write_buffer.py`).

After any error of SQLite the connection is closed and nothing more is attempted on it: a full disk makes SQLite roll
back and then commit each further statement by itself, behind rows that are gone. Whoever holds the index opens another
and catches it up (`ledger.py`, docs/decisions/0025).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple

from ratchet.logs.index_check import ROWS
from ratchet.logs.retention import removed_ids as forgotten
from ratchet.logs.start_offset import LogStartOffsets
from ratchet.service.errors import StorageUnavailable
from schemas.messages.result import ResultStatus
from services.orchestrator.ledger.write_buffer import BufferedTask, WriteBuffer

SCHEMA_VERSION = 2
CACHE_KIB = 2048
"""Pages SQLite keeps in memory; beyond them it reads from the page cache of the kernel (docs/decisions/0069)."""
FORGET_AT_ONCE = 2_000
"""Tasks that are forgotten in one step: messages wait meanwhile."""
FETCHED_AT_ONCE = 100
IN_USE_S = 0.5
FORGOTTEN_IDS = "forgotten.ids"
FORGOTTEN_SEQUENCE = "forgotten.sequence"
EPOCH = "epoch"
"""Names among the positions: how many ids of removed tasks are known here, below which number tasks are removed, and
of which leader the last commit is: a transaction that did not see it can't be committed behind it."""
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
    ended INTEGER,
    owner TEXT
);
CREATE INDEX IF NOT EXISTS open_tasks ON tasks (deadline) WHERE result IS NULL;
CREATE INDEX IF NOT EXISTS owned_tasks ON tasks (owner, sequence) WHERE owner IS NOT NULL;
CREATE INDEX IF NOT EXISTS unanswered_tasks ON tasks (ended) WHERE ended > 0;
CREATE TABLE IF NOT EXISTS waiters (
    task_id TEXT NOT NULL, reply_to TEXT NOT NULL, correlation_id TEXT, UNIQUE (task_id, reply_to, correlation_id)
);
CREATE TABLE IF NOT EXISTS kept (task_id TEXT PRIMARY KEY, response BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, note BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS positions (log TEXT PRIMARY KEY, position INTEGER NOT NULL);
"""

Statement = tuple[str, tuple[Any, ...]]
"""A change of what no log has (waiters, kept Responses, notes), with its parameters. Made twice it is the same."""
NO_POSITIONS: Mapping[str, int] = MappingProxyType({})


class IndexUnusable(StorageUnavailable):
    """The index can't be read or written now. What the logs hold is not lost; the message that met it waits."""

    def __init__(self, path: Path, error: Exception | str, *, corrupt: bool) -> None:
        """`corrupt`: its content is not to be believed, so it must be built again from the logs."""
        what = "can't be read" if corrupt else "can't be used now"
        todo = "it is built again from the logs" if corrupt else "free some disk, or look at it (dmesg)"
        super().__init__(f"the index {path} {what} ({error}): {todo}")
        self.path = path
        self.reason = str(error)
        self.corrupt = corrupt

    def again(self) -> IndexUnusable:
        """The same, to be raised once more: each has a traceback of its own."""
        return IndexUnusable(self.path, self.reason, corrupt=self.corrupt)


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
    owner: str | None = None
    """Who may see it: see `Caller.may_see`."""


ENDINGS = {"ok": 0, "failed": 1, "expired": 2}
"""The column `ended`; null while the task is open."""
ENTRY = "sequence, task_id, logged, work, result, line, lines, owner"
BUFFERED = "sequence, task_id, deadline, work, line, logged, result, lines, ended, owner"
INSERT = "INSERT INTO tasks (sequence, task_id, deadline, logged, work, result, line, lines, ended, owner) "
CHANGE = "UPDATE tasks SET logged = ?, result = ?, lines = ?, ended = ?, work = ? WHERE sequence = ?"
SET_POSITION = "INSERT OR REPLACE INTO positions VALUES (?, ?)"
ADD_WAITER = "INSERT OR IGNORE INTO waiters VALUES (?, ?, ?)"
FORGET_WAITERS = "DELETE FROM waiters WHERE task_id = ?"
KEEP_RESPONSE = "INSERT OR REPLACE INTO kept VALUES (?, ?)"
WRITE_NOTE = "INSERT OR REPLACE INTO notes VALUES (?, ?)"


class _Guard:
    """Around every use of the connection: only within a transaction, and never again after an error."""

    def __init__(self, index: TaskIndex) -> None:
        self._index = index

    def __enter__(self) -> sqlite3.Connection:
        db = self._index._db
        try:
            if db.in_transaction:
                return db
        except sqlite3.ProgrammingError:
            raise self._index.give_up("it is closed after an error") from None
        raise self._index.give_up("its transaction was rolled back")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, sqlite3.Error):
            raise self._index.give_up(error) from error


class TaskIndex:
    """One connection, used by one thread at a time. Changes are visible to it at once and survive a kill at `commit`.

    Everything here raises IndexUnusable, from the first error of SQLite on.
    """

    def __init__(self, path: Path, epoch: int = 0) -> None:
        """Opens or creates it; by its first commit it is this epoch's, and another's no more."""
        self._epoch = epoch
        self._is_mine = False
        self.forget_at_once = FORGET_AT_ONCE
        self.path = path
        self.broken: IndexUnusable | None = None
        self._guard = _Guard(self)
        self._young = WriteBuffer()
        self._uncommitted: list[Statement] = []
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise IndexUnusable(path, error, corrupt=False) from error
        try:
            self._prepare()
        except sqlite3.Error as error:
            raise self.give_up(error) from error

    def _prepare(self) -> None:
        execute = self._db.execute
        version = execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, SCHEMA_VERSION):
            raise sqlite3.DatabaseError(f"it has version {version}, this orchestrator knows {SCHEMA_VERSION}")
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = NORMAL")
        execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        columns = [name for _, name, *_ in execute("PRAGMA table_info(tasks)")]
        if columns and "owner" not in columns:  # of an orchestrator before, which can use it on
            execute("ALTER TABLE tasks ADD COLUMN owner TEXT")
        self._db.executescript(SCHEMA)
        execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        execute("BEGIN")
        self._awaited = {task_id for (task_id,) in execute("SELECT DISTINCT task_id FROM waiters")}
        self._kept = {task_id for (task_id,) in execute("SELECT task_id FROM kept")}
        tables = execute("SELECT name FROM sqlite_master WHERE name GLOB 'forgotten_*'").fetchall()
        self._forgotten_below = self.position(FORGOTTEN_SEQUENCE)
        self._forgotten = {name: int(name.removeprefix("forgotten_")) for (name,) in tables}
        stored = self._row("SELECT position FROM positions WHERE log = ?", ROWS)
        (self._rows,) = stored or execute("SELECT count(*) FROM tasks").fetchone()

    def give_up(self, error: sqlite3.Error | str) -> IndexUnusable:
        """Close the connection for good. Returns what to raise."""
        corrupt = isinstance(error, sqlite3.DatabaseError) and not isinstance(
            error, (sqlite3.OperationalError, sqlite3.ProgrammingError)
        )
        if self.broken is None:
            self.broken = IndexUnusable(self.path, error, corrupt=corrupt)
        with suppress(sqlite3.Error):
            self._db.close()
        return self.broken.again()

    def follow(self, folder: Path, floor: LogStartOffsets) -> bool:
        """Forget, a part at each call, the tasks that were removed from the logs. True when there is no more to forget.

        Until then, and after, such a task is known: as it was, or as forgotten. Raises JournalError.
        """
        known = max(self.position(FORGOTTEN_IDS), forgotten.oldest(floor.ids))
        if known < floor.ids:
            sums = forgotten.read(folder, known, min(self.forget_at_once, floor.ids - known))
            with self._guard as db:
                table = self._table_of(db, known // forgotten.PER_FILE)
                db.executemany(f"INSERT OR IGNORE INTO {table} VALUES (?)", ((one,) for one in sums))
                db.execute(SET_POSITION, (FORGOTTEN_IDS, known + len(sums)))
            return False
        with self._guard as db:
            self._write_young(db)
            self._drop_tables_before(db, forgotten.oldest(floor.ids) // forgotten.PER_FILE)
            db.execute(SET_POSITION, (FORGOTTEN_SEQUENCE, floor.sequence))
            removed = db.execute(
                "DELETE FROM tasks WHERE sequence IN "
                "(SELECT sequence FROM tasks WHERE sequence < ? AND result IS NOT NULL LIMIT ?)",
                (floor.sequence, self.forget_at_once),
            ).rowcount
        self._forgotten_below = floor.sequence
        self._rows -= removed
        return removed < self.forget_at_once

    def is_forgotten(self, task_id: str) -> bool:
        """True if the task was removed from the logs: it was closed, and its Result is no longer known."""
        if not self._forgotten:
            return False
        one = forgotten.sum_of(task_id)
        tables = " UNION ALL ".join(f"SELECT sum FROM {table} WHERE sum = ?1" for table in self._forgotten)
        return self._row(tables, one) is not None

    def _table_of(self, db: sqlite3.Connection, number: int) -> str:
        table = f"forgotten_{number}"
        if table not in self._forgotten:
            db.execute(f"CREATE TABLE IF NOT EXISTS {table} (sum INTEGER PRIMARY KEY)")
            self._forgotten[table] = number
        return table

    def _drop_tables_before(self, db: sqlite3.Connection, number: int) -> None:
        for table, its in list(self._forgotten.items()):
            if its < number:
                db.execute(f"DROP TABLE {table}")
                del self._forgotten[table]

    def commit(self, positions: Mapping[str, int] = NO_POSITIONS, *, durable: bool = False) -> None:
        """Make everything so far survive a kill, and that the index is current up to these positions: both, or neither.

        With `durable` it survives the loss of power too: a second, small transaction is synced, and with it all that
        was written before it.
        """
        if self._is_mine and self.position(EPOCH) != self._epoch:
            raise self.give_up("another orchestrator leads, and uses it")
        with self._guard as db:
            self._write_young(db)
            db.executemany(SET_POSITION, [*positions.items(), (ROWS, self._rows), (EPOCH, self._epoch)])
            db.execute("COMMIT")
            if durable:
                db.execute("PRAGMA synchronous = FULL")
                db.execute("BEGIN IMMEDIATE")
                db.execute(SET_POSITION, (ROWS, self._rows))
                db.execute("COMMIT")
                db.execute("PRAGMA synchronous = NORMAL")
            self._uncommitted.clear()
            self._is_mine = True
            db.execute("BEGIN")

    def _write_young(self, db: sqlite3.Connection) -> None:
        new, changes = self._young.unwritten()
        if new:
            db.executemany(f"{INSERT} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", new)
            self._rows += len(new)
        if changes:
            db.executemany(CHANGE, changes)
        self._young.written()

    def close(self) -> None:
        """What came since the last commit is not kept."""
        self.give_up("it is closed")

    def position(self, log: str) -> int:
        """Up to which byte of a log the index is current."""
        row = self._row("SELECT position FROM positions WHERE log = ?", log)
        return int(row[0]) if row else 0

    def next_sequence(self) -> int:
        with self._guard as db:
            self._write_young(db)
        (after_known,) = self._row("SELECT coalesce(max(sequence), -1) + 1 FROM tasks") or (0,)
        return max(int(after_known), self.forgotten_below)

    @property
    def forgotten_below(self) -> int:
        """Tasks with a lower assignment number were removed from the logs."""
        return self._forgotten_below

    def find(self, task_id: str) -> Entry | None:
        young = self._young.find(task_id)
        if young is not None:
            return Entry(
                young.sequence,
                young.task_id,
                young.logged,
                young.work,
                young.result,
                young.line,
                young.lines,
                young.owner,
            )
        row = self._row(f"SELECT {ENTRY} FROM tasks WHERE task_id = ?", task_id)
        return Entry(*row) if row else None

    def id_of(self, sequence: int) -> str | None:
        """The task that has this number."""
        with self._guard as db:
            self._write_young(db)
        row = self._row("SELECT task_id FROM tasks WHERE sequence = ?", sequence)
        return str(row[0]) if row else None

    def admit(
        self, sequence: int, task_id: str, deadline: float, work: bytes, line: int = 0, owner: str | None = None
    ) -> None:
        """A task that `find` did not know. `deadline` in seconds since the epoch; `line`: where it is in its log."""
        self._young.add(BufferedTask(sequence, task_id, deadline, work, line, owner=owner))
        self._keep_small()

    def count_logged(self, task_id: str, logged: int) -> None:
        """Some samples of an open task are in the log: what a kill in the middle of its group left."""
        if (task := self._buffered(task_id)) is not None:
            self._young.count_logged(task, logged)

    def settle(self, task_id: str, *, logged: int, result: bytes, lines: int = 0, status: ResultStatus = "ok") -> None:
        """A task is closed; `lines`: where its lines begin. Nothing happens where it is not known."""
        if (task := self._buffered(task_id)) is not None:
            self._young.settle(task, logged, result, lines, ENDINGS[status])
            self._keep_small()

    def forget_work(self, task_id: str) -> None:
        if (task := self._buffered(task_id)) is not None:
            self._young.forget_work(task)

    def _buffered(self, task_id: str) -> BufferedTask | None:
        task = self._young.find(task_id)
        if task is None and (row := self._row(f"SELECT {BUFFERED} FROM tasks WHERE task_id = ?", task_id)):
            task = BufferedTask(*row)
            task.stored = True
            self._young.add(task)
        return task

    def _keep_small(self) -> None:
        if self._young.too_many:
            with self._guard as db:
                self._write_young(db)

    def open_works(self) -> Iterator[bytes]:
        """The Work of every open task, in the order of assignment."""
        with self._guard as db:
            self._write_young(db)
            rows = db.execute("SELECT work FROM tasks WHERE result IS NULL ORDER BY sequence")
        while True:
            with self._guard:
                some = rows.fetchmany(FETCHED_AT_ONCE)
            if not some:
                return
            for (work,) in some:
                yield work

    def oldest_open_work(self) -> bytes | None:
        """The Work of the open task that was assigned first. Reads the index of open tasks only, as `count` does."""
        with self._guard as db:
            self._write_young(db)
        row = self._row(
            "SELECT work FROM tasks WHERE sequence = "
            "(SELECT min(sequence) FROM tasks INDEXED BY open_tasks WHERE result IS NULL)"
        )
        return row[0] if row else None

    def overdue(self, now: float, limit: int, sequences: range | None = None) -> list[Entry]:
        """Open tasks whose deadline passed, the longest overdue first. `now` in seconds since the epoch.

        `sequences`: only tasks with these numbers.
        """
        with self._guard as db:
            self._write_young(db)
            first, end = (sequences.start, sequences.stop) if sequences is not None else (0, 1 << 62)
            rows = db.execute(
                f"SELECT {ENTRY} FROM tasks WHERE result IS NULL AND deadline < ? AND sequence >= ? AND sequence < ? "
                "ORDER BY deadline LIMIT ?",
                (now, first, end, limit),
            ).fetchall()
        return [Entry(*row) for row in rows]

    def first_open(self) -> int | None:
        """The number of the open task that was assigned first."""
        with self._guard as db:
            self._write_young(db)
        row = self._row("SELECT min(sequence) FROM tasks INDEXED BY open_tasks WHERE result IS NULL")
        return row[0] if row else None

    def count(self) -> tuple[int, int]:
        """Tasks that were ever known, and open ones among them."""
        known = self.next_sequence()
        (opened,) = self._row("SELECT count(*) FROM tasks WHERE result IS NULL") or (0,)
        return known, int(opened)

    def add_waiter(self, task_id: str, reply_to: str, correlation_id: str | None) -> None:
        """One more queue that wants the Result of an open task; a promise once `commit` has made it durable."""
        self._change(ADD_WAITER, task_id, reply_to, correlation_id)
        self._awaited.add(task_id)

    def waiters(self, task_id: str) -> list[tuple[str, str | None]]:
        if task_id not in self._awaited:
            return []
        with self._guard as db:
            return db.execute("SELECT reply_to, correlation_id FROM waiters WHERE task_id = ?", (task_id,)).fetchall()

    def forget_waiters(self, task_id: str) -> None:
        self._change(FORGET_WAITERS, task_id)
        self._awaited.discard(task_id)

    def keep_response(self, task_id: str, response: bytes) -> None:
        """For the draft-shaped Reward to come; a promise once `commit` has made it durable."""
        self._change(KEEP_RESPONSE, task_id, response)
        self._kept.add(task_id)

    def kept_response(self, task_id: str) -> bytes | None:
        row = self._row("SELECT response FROM kept WHERE task_id = ?", task_id)
        return row[0] if row else None

    def forget_response(self, task_id: str) -> None:
        if task_id in self._kept:
            self._change("DELETE FROM kept WHERE task_id = ?", task_id)
            self._kept.discard(task_id)

    def promises(self) -> Iterator[Statement]:
        """What is owed to whom: queues that wait, and kept Responses."""
        with self._guard as db:
            for statement, table in ((ADD_WAITER, "waiters"), (KEEP_RESPONSE, "kept")):
                yield from ((statement, row) for row in db.execute(f"SELECT * FROM {table}").fetchall())

    def note(self, name: str) -> bytes | None:
        """What was written down under a name: it survives a kill, but not the loss of the index."""
        row = self._row("SELECT note FROM notes WHERE name = ?", name)
        return row[0] if row else None

    def write_note(self, name: str, note: bytes) -> None:
        self._change(WRITE_NOTE, name, note)

    def take_uncommitted(self) -> tuple[Statement, ...]:
        """What changed since the last commit of that which no log has: for the index that takes the place of this.

        It is given once.
        """
        taken, self._uncommitted = tuple(self._uncommitted), []
        return taken

    def replay(self, statements: Sequence[Statement]) -> None:
        """Make these changes too: of the index whose place this one takes."""
        with self._guard as db:
            self._write_young(db)
            for sql, parameters in statements:
                db.execute(sql, parameters)
            db.execute("DELETE FROM kept WHERE task_id IN (SELECT task_id FROM tasks WHERE ended IS NOT NULL)")
            self._awaited = {task_id for (task_id,) in db.execute("SELECT DISTINCT task_id FROM waiters")}
            self._kept = {task_id for (task_id,) in db.execute("SELECT task_id FROM kept")}

    def _change(self, sql: str, *parameters: Any) -> None:
        with self._guard as db:
            db.execute(sql, parameters)
        self._uncommitted.append((sql, parameters))

    def _row(self, sql: str, *parameters: Any) -> tuple[Any, ...] | None:
        with self._guard as db:
            row: tuple[Any, ...] | None = db.execute(sql, parameters).fetchone()
        return row


def is_in_use(path: Path) -> bool:
    """Whether somebody is in the middle of a change of it."""
    try:
        with closing(sqlite3.connect(path, timeout=IN_USE_S, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return True
    except sqlite3.DatabaseError:
        return False
    return False


def copied(path: Path, to: Path) -> Path:
    """All that was committed to an index that somebody else may hold. Raises IndexUnusable."""
    temporary = to.with_name(f"{to.name}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        with (
            closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(temporary)) as copy,
        ):
            source.backup(copy)
        temporary.rename(to)
    except (sqlite3.Error, OSError) as error:
        raise IndexUnusable(path, error, corrupt=False) from error
    return to


def promises_in(path: Path) -> list[Statement]:
    """What no log has, out of an index that is not to be used any more, as far as it can be read."""
    found: list[Statement] = []
    tables = ((ADD_WAITER, "waiters"), (KEEP_RESPONSE, "kept"), (WRITE_NOTE, "notes"))
    for statement, table in tables:
        with suppress(sqlite3.Error), closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as db:
            found.extend((statement, row) for row in db.execute(f"SELECT * FROM {table}").fetchall())
    return found
