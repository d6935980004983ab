"""The index of tasks: which are known, open or closed, with which Result, and what is promised to their users.

It lies in a file, so that a year of tasks costs no memory. The tasks of the last moments are in memory beside it: most
are looked up once more and closed before they are written anywhere, so that they are written once, without their Work.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ratchet.logs.index_check import ROWS
from ratchet.logs.retention import removed_ids as forgotten
from ratchet.logs.segments import LogStartOffsets, Position
from schemas.messages.result import ResultStatus
from services.orchestrator.ledger.indexed_log import NO_POSITIONS, SET_POSITION, Index, IndexUnusable

FORGET_AT_ONCE = 2_000
"""Tasks that are forgotten in one step: messages wait meanwhile."""
FETCHED_AT_ONCE = 100
FORGOTTEN_IDS = "forgotten.ids"
FORGOTTEN_SEQUENCE = "forgotten.sequence"
"""Names among the positions: how many ids of removed tasks are known here, and below which number tasks are removed."""
MOST_BYTES = 16 * 1024 * 1024
"""Bytes of Works and Results in memory: beyond it they are written down, and the oldest are no longer kept."""
OVERHEAD_BYTES = 400
"""Bytes a task takes in memory besides its Work and its Result."""
ENDINGS = {"ok": 0, "failed": 1, "expired": 2, "cancelled": 3}
"""The column `ended`; null while the task is open."""


TENANT_IS = "iif(task_id GLOB 'tenant:*/*', substr(task_id, 1, instr(task_id, '/')), '')"
"""The beginning of the key of a task's tenant (`key_beginning`), in SQL."""


class Entry(NamedTuple):
    """A task's row in the table."""

    sequence: int
    task_id: str
    deadline: float
    """Seconds since the epoch."""
    logged: int
    """The number of its samples that are in the log."""
    work: bytes | None
    """The Work, while the task is open, or closed without an answer or by a kept Reward and its user not yet told."""
    result: bytes | None
    """The Result, once it is closed."""
    line: int | None = None
    """The place of its line in the log of assignments."""
    lines: int | None = None
    """The place where its lines begin in the log of interactions, once it is closed."""
    ended: int | None = None
    owner: str | None = None
    """The name of its owner: see `Caller.may_see`."""

    @property
    def size(self) -> int:
        """Bytes it takes in memory, about."""
        return OVERHEAD_BYTES + len(self.work or b"") + len(self.result or b"")


COLUMNS = ", ".join(Entry._fields)
INSERT = f"INSERT INTO tasks ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
CHANGE = "UPDATE tasks SET logged = ?4, work = ?5, result = ?6, lines = ?8, ended = ?9, owner = ?10 WHERE sequence = ?1"
OLDEST_OPEN = "SELECT min(sequence) FROM tasks INDEXED BY open_tasks WHERE result IS NULL"


class Promise(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of: a queue that waits for the task's Result; a Response kept for it; `told`: nobody waits any more."""

    task_id: str
    reply_to: str | None = None
    correlation_id: str | None = None
    response: str | None = None
    told: bool = False


class TaskIndex(Index):
    """The table of tasks, and of what is promised to their users."""

    VERSION = 2
    SCHEMA = f"""
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
CREATE INDEX IF NOT EXISTS tenants_tasks ON tasks ({TENANT_IS}, sequence) WHERE task_id GLOB 'tenant:*/*';
CREATE TABLE IF NOT EXISTS waiters (
    task_id TEXT NOT NULL, reply_to TEXT NOT NULL, correlation_id TEXT, UNIQUE (task_id, reply_to, correlation_id)
);
CREATE TABLE IF NOT EXISTS kept (task_id TEXT PRIMARY KEY, response BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, note BLOB NOT NULL);
"""

    def __init__(self, path: Path, epoch: int = 0, notes: dict[str, bytes] | None = None) -> None:
        """`notes`: those of the index whose place this one takes; they go on."""
        self.forget_at_once = FORGET_AT_ONCE
        self._tasks: dict[str, Entry] = {}
        """The open tasks, as far as there is room, and those that changed since they were last written."""
        self._new: dict[str, None] = {}
        self._changed: dict[str, None] = {}
        """Ids of tasks in memory that have no row yet, and of those whose row is older."""
        self._bytes = 0
        super().__init__(path, epoch)
        self._waited_for = {task_id for (task_id,) in self.rows("SELECT DISTINCT task_id FROM waiters")}
        self._kept = {task_id for (task_id,) in self.rows("SELECT task_id FROM kept")}
        tables = self.rows("SELECT name FROM sqlite_master WHERE name GLOB 'forgotten_*'")
        self._forgotten = {name: int(name.removeprefix("forgotten_")) for (name,) in tables}
        self.forgotten_below = self.position(FORGOTTEN_SEQUENCE)
        """Tasks with a lower assignment number were removed from the logs."""
        stored = self.row("SELECT position FROM positions WHERE log = ?", ROWS)
        self._rows = int((stored or self.rows("SELECT count(*) FROM tasks")[0])[0])
        self._stored_notes: dict[str, bytes] = dict(self.rows("SELECT name, note FROM notes"))
        self._notes = {} if notes is None else notes
        for name, note in self._stored_notes.items():
            self._notes.setdefault(name, note)

    def _prepare(self, db: sqlite3.Connection) -> None:
        columns = [name for _, name, *_ in db.execute("PRAGMA table_info(tasks)")]
        if columns and "owner" not in columns:  # of an orchestrator before 0.2, which can use it on
            db.execute("ALTER TABLE tasks ADD COLUMN owner TEXT")
        super()._prepare(db)

    # --- tasks -----------------------------------------------------------------------------------------------------

    def find(self, task_id: str) -> Entry | None:
        if (known := self._tasks.get(task_id)) is not None:
            return known
        row = self.row(f"SELECT {COLUMNS} FROM tasks WHERE task_id = ?", task_id)
        return Entry(*row) if row else None

    def id_of(self, sequence: int) -> str | None:
        """The task that has this number."""
        row = self._written_row("SELECT task_id FROM tasks WHERE sequence = ?", sequence)
        return str(row[0]) if row else None

    def admit(
        self, sequence: int, task_id: str, deadline: float, work: bytes, line: int = 0, owner: str | None = None
    ) -> None:
        """A task that `find` did not know; `line`: where it is in its log."""
        self._new[task_id] = None
        self._put(Entry(sequence, task_id, deadline, 0, work, None, line, None, None, owner))

    def count_logged(self, task_id: str, logged: int) -> None:
        """Some samples of an open task are in the log: what a kill in the middle of its group left."""
        if (known := self.find(task_id)) is not None:
            self._put(known._replace(logged=max(known.logged, logged)))

    def settle(self, task_id: str, *, logged: int, result: bytes, lines: int = 0, status: ResultStatus = "ok") -> None:
        """A task is closed; `lines`: where its lines begin. Nothing happens where it is not known.

        The first Result stays, and only samples may come later. With samples logged its Work is no longer needed,
        unless a Response or Reward is kept for it.
        """
        if (known := self.find(task_id)) is None:
            return
        self._put(
            Entry(
                known.sequence,
                task_id,
                known.deadline,
                max(known.logged, logged),
                None if logged and task_id not in self._kept else known.work,
                known.result or result,
                known.line,
                lines,
                ENDINGS[status] if known.ended is None else known.ended,
                known.owner,
            )
        )

    def forget_work(self, task_id: str) -> None:
        if (known := self.find(task_id)) is not None:
            self._put(known._replace(work=None))

    def next_sequence(self) -> int:
        """Behind all that were ever known."""
        (after_known,) = self._written_row("SELECT coalesce(max(sequence), -1) + 1 FROM tasks") or (0,)
        return max(int(after_known), self.forgotten_below)

    def open_works(self) -> Iterator[bytes]:
        """The Work of every open task, in the order of assignment."""
        self._write()
        cursor = self.use(lambda db: db.execute("SELECT work FROM tasks WHERE result IS NULL ORDER BY sequence"))
        while some := self.use(lambda _: cursor.fetchmany(FETCHED_AT_ONCE)):
            for (work,) in some:
                yield work

    def oldest_open_work(self) -> bytes | None:
        """The Work of the open task that was assigned first. Reads the index of open tasks only, as `count` does."""
        row = self._written_row(f"SELECT work FROM tasks WHERE sequence = ({OLDEST_OPEN})")
        return row[0] if row else None

    def overdue(self, now: float, limit: int, sequences: range | None = None) -> list[Entry]:
        """Open tasks whose deadline passed, the longest overdue first. `now` in seconds since the epoch.

        `sequences`: only tasks with these numbers.
        """
        self._write()
        first, end = (sequences.start, sequences.stop) if sequences is not None else (0, 1 << 62)
        rows = self.rows(
            f"SELECT {COLUMNS} FROM tasks WHERE result IS NULL AND deadline < ? AND sequence >= ? AND sequence < ? "
            "ORDER BY deadline LIMIT ?",
            now,
            first,
            end,
            limit,
        )
        return [Entry(*row) for row in rows]

    def first_open(self) -> int | None:
        """The number of the open task that was assigned first."""
        row = self._written_row(OLDEST_OPEN)
        return row[0] if row else None

    def count(self) -> tuple[int, int]:
        """Tasks that were ever known, and open ones among them."""
        known = self.next_sequence()
        (opened,) = self.row("SELECT count(*) FROM tasks WHERE result IS NULL") or (0,)
        return known, int(opened)

    def commit(self, positions: Mapping[str, Position] = NO_POSITIONS) -> None:
        self._write()
        notes = [(name, note) for name, note in self._notes.items() if self._stored_notes.get(name) != note]
        self.use(lambda db: db.executemany("INSERT OR REPLACE INTO notes VALUES (?, ?)", notes))
        super().commit({**positions, ROWS: self._rows})
        self._stored_notes.update(notes)

    def _put(self, entry: Entry) -> None:
        before = self._tasks.get(entry.task_id)
        self._tasks[entry.task_id] = entry
        self._bytes += entry.size - (before.size if before is not None else 0)
        if entry.task_id not in self._new:
            self._changed[entry.task_id] = None
        if self._bytes > MOST_BYTES:
            self._write()

    def _write(self) -> None:
        """Bring the table up to what is in memory, where only open tasks stay: the newest for which there is room."""
        if self._new or self._changed:
            new, changed = ([self._tasks[task_id] for task_id in ids] for ids in (self._new, self._changed))
            self.use(lambda db: db.executemany(INSERT, new))
            self.use(lambda db: db.executemany(CHANGE, changed))
            self._rows += len(new)
            for entry in (*new, *changed):
                if entry.result is not None:
                    self._drop(entry)
            self._new.clear()
            self._changed.clear()
        while self._bytes > MOST_BYTES // 2:
            self._drop(next(iter(self._tasks.values())))

    def _drop(self, entry: Entry) -> None:
        del self._tasks[entry.task_id]
        self._bytes -= entry.size

    def _written_row(self, sql: str, *parameters: Any) -> tuple[Any, ...] | None:
        self._write()
        return self.row(sql, *parameters)

    # --- tasks that were removed from the logs ---------------------------------------------------------------------

    def follow(self, folder: Path, floor: LogStartOffsets) -> bool:
        """Forget, a part at each call, the tasks that were removed from the logs. True when there is no more to forget.

        Until then, and after, such a task is known: as it was, or as forgotten. Raises JournalError.
        """
        known = max(self.position(FORGOTTEN_IDS), forgotten.oldest(floor.ids))
        if known < floor.ids:
            sums = forgotten.read(folder, known, min(self.forget_at_once, floor.ids - known))
            table = self._table_of(known // forgotten.PER_FILE)
            self.use(lambda db: db.executemany(f"INSERT OR IGNORE INTO {table} VALUES (?)", ((one,) for one in sums)))
            self.change(SET_POSITION, FORGOTTEN_IDS, known + len(sums))
            return False
        self._write()
        for table, number in list(self._forgotten.items()):
            if number < forgotten.oldest(floor.ids) // forgotten.PER_FILE:
                self.change(f"DROP TABLE {table}")
                del self._forgotten[table]
        self.change(SET_POSITION, FORGOTTEN_SEQUENCE, floor.sequence)
        removed = self.change(
            "DELETE FROM tasks WHERE sequence IN "
            "(SELECT sequence FROM tasks WHERE sequence < ? AND result IS NOT NULL LIMIT ?)",
            floor.sequence,
            self.forget_at_once,
        )
        self.forgotten_below = floor.sequence
        self._rows -= removed
        return removed < self.forget_at_once

    def is_forgotten(self, task_id: str) -> bool:
        """True if the task was removed from the logs: it was closed, and its Result is no longer known."""
        if not self._forgotten:
            return False
        tables = " UNION ALL ".join(f"SELECT sum FROM {table} WHERE sum = ?1" for table in self._forgotten)
        return self.row(tables, forgotten.sum_of(task_id)) is not None

    def _table_of(self, number: int) -> str:
        table = f"forgotten_{number}"
        if table not in self._forgotten:
            self.change(f"CREATE TABLE IF NOT EXISTS {table} (sum INTEGER PRIMARY KEY)")
            self._forgotten[table] = number
        return table

    # --- promises and notes ----------------------------------------------------------------------------------------

    def apply(self, promise: Promise) -> None:
        """Apply a promise. Applying those of a log again, in order, changes nothing."""
        if promise.told:
            self.change("DELETE FROM waiters WHERE task_id = ?", promise.task_id)
            self._waited_for.discard(promise.task_id)
        elif promise.response is not None:
            self.change("INSERT OR REPLACE INTO kept VALUES (?, ?)", promise.task_id, promise.response.encode())
            self._kept.add(promise.task_id)
        else:
            waiter = promise.task_id, promise.reply_to, promise.correlation_id
            self.change("INSERT OR IGNORE INTO waiters VALUES (?, ?, ?)", *waiter)
            self._waited_for.add(promise.task_id)

    def promises(self) -> Iterable[Promise]:
        """All promises that stand: queues that wait, and kept Responses."""
        for waiter in self.rows("SELECT task_id, reply_to, correlation_id FROM waiters"):
            yield Promise(*waiter)
        for task_id, response in self.rows("SELECT task_id, response FROM kept"):
            yield Promise(task_id, response=response.decode())

    def waiters(self, task_id: str) -> list[tuple[str, str | None]]:
        """Queues that want the Result of a task besides the one that it named, and their correlation ids."""
        if task_id not in self._waited_for:
            return []
        return self.rows("SELECT reply_to, correlation_id FROM waiters WHERE task_id = ?", task_id)

    def kept_response(self, task_id: str) -> bytes | None:
        row = self.row("SELECT response FROM kept WHERE task_id = ?", task_id)
        return row[0] if row else None

    def forget_response(self, task_id: str) -> None:
        if task_id in self._kept:
            self.change("DELETE FROM kept WHERE task_id = ?", task_id)
            self._kept.discard(task_id)

    def is_kept(self, task_id: str) -> bool:
        """Tell whether a Response or Reward is kept for the task."""
        return task_id in self._kept

    def kept_of_closed(self) -> list[tuple[str, bytes, Position]]:
        """Return what is still kept for closed tasks, and where their lines begin: no log says that it was used."""
        self._write()
        return self.rows("SELECT task_id, response, lines FROM kept JOIN tasks USING (task_id) WHERE ended IS NOT NULL")

    def note(self, name: str) -> bytes | None:
        """Return what was written down under a name: it survives a kill, but not the loss of the index."""
        return self._notes.get(name)

    def write_note(self, name: str, note: bytes) -> None:
        self._notes[name] = note


def copy_index(path: Path, to: Path) -> Path:
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


def read_what_no_log_has(path: Path) -> tuple[list[Promise], dict[str, bytes]]:
    """Promises and notes out of an index that is not used any more, as far as it can be read."""
    found: dict[str, list[tuple[Any, ...]]] = {"waiters": [], "kept": [], "notes": []}
    for table, rows in found.items():
        with suppress(sqlite3.Error), closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as db:
            rows.extend(db.execute(f"SELECT * FROM {table}"))
    promises = [Promise(*row) for row in found["waiters"]]
    promises += [Promise(task_id, response=response.decode()) for task_id, response in found["kept"]]
    return promises, dict(found["notes"])
