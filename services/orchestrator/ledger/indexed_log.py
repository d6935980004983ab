"""Logs that the leader of a folder writes, and an index over them: an SQLite file, which is a cache.

The logs are the truth. The index is changed once lines are on disk, in the order of the log, and stores up to which
byte of each log it is current in the same transaction as what it knows; it never runs ahead of them. What a kill cut
off is read again from the logs; an index that is broken, gone, or does not agree with them is built again from their
beginning (docs/decisions/0025).

After any error of SQLite its connection is closed and nothing more is attempted on it: a full disk makes SQLite roll
back and then commit each further statement by itself, behind rows that are gone. The next use opens another index.
What lines mean, and what is kept of them, is left to the subclasses.
"""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Required, TypedDict, TypeVar, Unpack

from ratchet.files.append_file import AppendFile
from ratchet.files.atomic_file import replace_database, unlink_database
from ratchet.logs.journal import Journal
from ratchet.logs.leadership import UNFENCED, Fence
from ratchet.logs.names import file_name
from ratchet.logs.quarantine import Quarantine
from ratchet.logs.reader import Line, read
from ratchet.logs.segments import Position
from ratchet.service.errors import JournalError, StorageUnavailable
from ratchet.service.telemetry import Log

CACHE_KIB = 2048
"""Pages that SQLite keeps in memory. More would be there twice: the kernel caches the file, too."""
EPOCH = "epoch"
"""Among the positions: of which leader the last commit is. A transaction that did not see it can't be committed."""
POSITIONS = "CREATE TABLE IF NOT EXISTS positions (log TEXT PRIMARY KEY, position INTEGER NOT NULL);"
SET_POSITION = "INSERT OR REPLACE INTO positions VALUES (?, ?)"
GATHER_S = 0.008
"""Seconds between two syncs of a log at least: a sync costs more than writing a hundred lines."""
MEND_AGAIN_S = 0.25
"""Seconds between two tries to mend an index: each reads what is missing."""

NO_POSITIONS: Mapping[str, Position] = MappingProxyType({})
T = TypeVar("T")

log = Log("ledger")


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
        """The same error, to be raised once more: each has a traceback of its own."""
        return IndexUnusable(self.path, self.reason, corrupt=self.corrupt)


class Index:
    """One connection, used by one thread at a time. Changes are visible to it at once and survive a kill at `commit`.

    Everything here raises IndexUnusable, from the first error of SQLite on.
    """

    SCHEMA: ClassVar[str]
    VERSION: ClassVar[int] = 0

    def __init__(self, path: Path, epoch: int = 0) -> None:
        """Opens or creates it; by its first commit it is this epoch's, and another's no more."""
        self.path = path
        self.broken: IndexUnusable | None = None
        self._epoch = epoch
        self._is_mine = False
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise IndexUnusable(path, error, corrupt=False) from error
        try:
            self._prepare(self._db)
            self._db.execute("BEGIN")
        except sqlite3.Error as error:
            raise self.give_up(error) from error

    def _prepare(self, db: sqlite3.Connection) -> None:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, self.VERSION):
            raise sqlite3.DatabaseError(f"it has version {version}, this orchestrator knows {self.VERSION}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        db.executescript(self.SCHEMA + POSITIONS)
        db.execute(f"PRAGMA user_version = {self.VERSION}")

    def use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return what `work` makes of the connection: within a transaction only, and never again after an error."""
        try:
            if self._db.in_transaction:
                return work(self._db)
            raise sqlite3.OperationalError("its transaction was rolled back")
        except sqlite3.Error as error:
            raise self.give_up(error) from error

    def row(self, sql: str, *parameters: Any) -> tuple[Any, ...] | None:
        found: tuple[Any, ...] | None = self.use(lambda db: db.execute(sql, parameters).fetchone())
        return found

    def rows(self, sql: str, *parameters: Any) -> list[Any]:
        return self.use(lambda db: db.execute(sql, parameters).fetchall())

    def change(self, sql: str, *parameters: Any) -> int:
        """Return the number of rows that were changed."""
        return self.use(lambda db: db.execute(sql, parameters).rowcount)

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

    def position(self, log: str) -> Position:
        """The byte of a log up to which the index is current."""
        row = self.row("SELECT position FROM positions WHERE log = ?", log)
        return int(row[0]) if row else 0

    def commit(self, positions: Mapping[str, Position] = NO_POSITIONS) -> None:
        """Make all so far survive a kill, and that the index is current up to these positions: both, or neither."""
        if self._is_mine and self.position(EPOCH) != self._epoch:
            raise self.give_up("another orchestrator leads, and uses it")
        self.use(lambda db: db.executemany(SET_POSITION, [*positions.items(), (EPOCH, self._epoch)]))
        self.use(lambda db: db.execute("COMMIT"))
        self._is_mine = True
        try:
            self._db.execute("BEGIN")
        except sqlite3.Error as error:
            raise self.give_up(error) from error

    def close(self) -> None:
        """Close the connection; changes since the last commit are not kept."""
        self.give_up("it is closed")


I = TypeVar("I", bound=Index)  # noqa: E741


class LogSettings(TypedDict, total=False):
    """The settings that all logs of a folder may share. `fence`: it leads at `open`."""

    segment_bytes: Required[int]
    index_dir: Path | None
    """Folder of the index, on a local disk; the logs folder if not given."""
    fence: Fence
    seals: Path | None
    """Folder of the seals of what teaches."""
    file_type: type[AppendFile]
    seconds: Callable[[], float]


class IndexedLog(ABC, Generic[I]):
    """The only writer of these logs: whoever opens it leads the folder. Use it from one event loop."""

    def __init__(self, folder: Path, logs: Sequence[str], index_name: str, **given: Unpack[LogSettings]) -> None:
        self.folder = folder
        self._logs = logs
        self._index_path = (given.get("index_dir") or folder) / index_name
        self._segment_bytes = given["segment_bytes"]
        self._fence = given.get("fence", UNFENCED)
        self._seals = given.get("seals")
        self._file_type = given.get("file_type", AppendFile)
        self._seconds = given.get("seconds", monotonic)
        self._journals: dict[str, Journal] = {}
        self._index: I
        self._mend_after = 0.0
        self._rebuilding: asyncio.Task[None] | None = None

    @abstractmethod
    def _make_index(self, path: Path) -> I:
        """Open an index, or make an empty one. Raises IndexUnusable."""

    @abstractmethod
    def _catch_up(self, index: I, ends: Mapping[str, Position]) -> Mapping[str, Position]:
        """Read into the index what it lacks before these ends; to read a line twice is to read it once.

        Returns up to where it is current then. Blocks, perhaps in a thread. Raises JournalError.
        """

    def _fault(self) -> str | None:
        """Say why the index that is there is not to be believed; None where nothing is wrong. For `open` only."""
        return None

    def _ends(self) -> Mapping[str, Position]:
        """The ends of the logs: all lines before are on disk, and in the index."""
        return {name: journal.end for name, journal in self._journals.items()}

    def _current(self) -> Mapping[str, Position]:
        """The positions up to which the next start need not read."""
        return self._ends()

    async def open(self) -> None:
        """Repair the logs' tails and bring the index up to them. Takes as long as there is to read.

        Raises JournalError.
        """
        await asyncio.to_thread(self._open)

    async def close(self) -> None:
        """Close logs and index. The next start reads from the logs what the index could not keep."""
        if self._rebuilding is not None:
            await asyncio.wait([self._rebuilding])
        for journal in self._journals.values():
            await journal.close()
        try:
            self.commit()
        except StorageUnavailable as error:
            log.warning("index-behind", f"{error}: the next start catches up")
        self._index.close()

    async def check_storage(self) -> None:
        """Raises StorageUnavailable while the disk does not take the logs' lines."""
        for journal in self._journals.values():
            await journal.check()

    @property
    def index(self) -> I:
        """Raises StorageUnavailable while it can't be used."""
        if self._index.broken:
            self._mend(self._index.broken)
        return self._index

    def commit(self) -> None:
        """Make the index survive a kill as it is, so that the next start has less to read. Raises JournalError."""
        self._fence.check()
        try:
            self.index.commit(self._current())
        except IndexUnusable:
            if self._index.broken:
                self._mend(self._index.broken)  # which commits it

    async def _append(self, log: str, lines: Sequence[bytes], apply: Callable[[Position], None]) -> Position:
        """Write lines, with the epoch of their writer, and put them into the index once they are on disk.

        Returns where they begin, whatever becomes of the index. Raises JournalError: then none of them is in the log.
        """

        def put(position: Position) -> None:
            with suppress(IndexUnusable):  # the next use of the index reads them from the log
                apply(position)

        return await self._journals[log].append(lines, put)

    # --- opening and mending ---------------------------------------------------------------------------------------

    def _open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._index_path.parent.mkdir(parents=True, exist_ok=True)
        self._journals = {name: self._open_journal(name) for name in self._logs}
        try:
            if (why := self._fault()) is not None:
                raise JournalError(f"the index {self._index_path} does not agree with the logs: {why}")
            self._take_up()
        except JournalError as error:
            if not _is_disbelief(error):
                raise
            log.warning("index-rebuilt", f"{error}: it is built again from the logs")
            self._build_again(self._ends())
            self._take_up()

    def _open_journal(self, name: str) -> Journal:
        return Journal.open(
            self.folder,
            name,
            max_segment_bytes=self._segment_bytes,
            gather_s=GATHER_S,
            file_type=self._file_type,
            fence=self._fence,
            seals=self._seals,
        )

    def _take_up(self) -> None:
        """Open the index and bring it up to the logs. It takes the place of the one before once it is committed."""
        index = self._make_index(self._index_path)
        try:
            ends = self._ends()
            for name, end in ends.items():
                if index.position(name) > end:
                    raise JournalError(f"the index knows more than {file_name(name)}, which ends at byte {end}")
            index.commit(self._catch_up(index, ends))
        except BaseException:
            index.close()
            raise
        self._index = index

    def _mend(self, broken: IndexUnusable) -> None:
        """Put another index in the broken one's place, with all it should know, committed. Raises IndexUnusable."""
        self._fence.check()
        if self._seconds() < self._mend_after or (self._rebuilding is not None and not self._rebuilding.done()):
            raise broken.again()
        log.error("index-broken", f"{broken}: it is caught up from the logs")
        self._mend_after = self._seconds() + MEND_AGAIN_S
        if broken.corrupt:
            self._rebuilding = asyncio.create_task(self._rebuild(broken))
            raise broken.again()
        try:
            self._take_up()
        except (JournalError, OSError) as error:
            if _is_disbelief(error):
                self._index.broken = IndexUnusable(broken.path, error, corrupt=True)
            raise IndexUnusable(broken.path, error, corrupt=False) from error
        self._mend_after = 0.0

    async def _rebuild(self, corrupt: IndexUnusable) -> None:
        """Build it in a thread, for it takes as long as there is to read: messages wait. The next use takes it up."""
        try:
            await asyncio.to_thread(self._build_again, self._ends())
        except (JournalError, OSError) as error:
            log.error("index-not-rebuilt", f"{error}: it is tried again")
            self._mend_after = self._seconds() + MEND_AGAIN_S
        else:
            log.warning("index-rebuilt", f"{corrupt.path} was built again from the logs")
            self._index.broken = IndexUnusable(corrupt.path, corrupt.reason, corrupt=False)

    def _build_again(self, ends: Mapping[str, Position]) -> None:
        """Make an index from the logs alone, and put it in the place of the one that is there once it is complete."""
        built = self._index_path.with_name(f"{self._index_path.name}.new")
        unlink_database(built)
        index = self._make_index(built)
        try:
            index.commit(self._catch_up(index, ends))
        finally:
            index.close()
        with self._fence.changing():
            replace_database(built, self._index_path)


def lines_before(folder: Path, name: str, start: Position, end: Position, quarantine: Quarantine) -> Iterator[Line]:
    """The lines of a log between two positions. What is behind the end may be taken back: it is not read."""
    for line in read(folder, name, start, on_bad=quarantine):
        if line.position >= end:
            return
        yield line


def _is_disbelief(error: Exception) -> bool:
    """True where the index must be built again: its content is wrong, not its disk."""
    if isinstance(error, IndexUnusable):
        return error.corrupt
    return isinstance(error, JournalError) and not isinstance(error, StorageUnavailable)
