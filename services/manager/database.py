"""The manager's database: opened, brought up to date, and one transaction at a time.

SQLite serves one manager, which locks a file beside it. With PostgreSQL several managers may run: all answer over
HTTP, and the one that has the advisory lock releases tasks. Nothing here knows what a job is.
"""

from __future__ import annotations

import asyncio
import fcntl
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnection

from ratchet.service.errors import SettingsError, StorageUnavailable
from services.manager.tables import METADATA

T = TypeVar("T")

LOCK = 7_283_311_001
"""Names the advisory lock of who releases; the one of who migrates is the next number."""
AWAY = (OperationalError, InterfaceError, NoConnection)
CONNECT_S = 5
ANSWERS_WITHIN_MS = 60_000
KEEPALIVE = "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"
"""Has the server end the session of a manager that is gone, whose lock would keep the others from releasing."""
WRITES = {"writes": True}
"""An option of connections whose transactions write."""
SILENT_S = 8.0
"""Seconds after its last answer from which nobody waits for it any more."""


@dataclass(slots=True)
class _Write:
    """Work that waits for a transaction, and what came of it. `brief`: it takes milliseconds."""

    work: Callable[[Connection], Any]
    brief: bool
    committed: asyncio.Future[None]
    result: Any = None
    error: Exception | None = None


class Database:
    """Transactions run one after the other, in a thread of their own; `look` and `find` are for reading beside them.

    On SQLite those that wait are committed together, for a sync of the disk takes longer than most of them. Brief ones
    are made in the event loop: beside a busy loop each statement of a thread waits milliseconds for the interpreter.
    """

    def __init__(self, url: str) -> None:
        self._url = make_url(url)
        if self._url.get_backend_name() == "postgresql":
            self._url = self._url.set(drivername="postgresql+psycopg")
        self._file = Path(str(self._url.database))
        """The file of SQLite."""
        self._engine: Engine | None = None
        self._reader: Connection | None = None
        """Reads a SQLite file outside of transactions: each statement sees what is committed."""
        self._reader_file: int | None = None
        self._lock_file: IO[bytes] | None = None
        self._file_number: int | None = None
        self._leading: Connection | None = None
        self._answered_at = time.monotonic()
        self._writes = ThreadPoolExecutor(1, "manager-db")
        self._waiting: deque[_Write] = deque()
        self._committing: asyncio.Task[None] | None = None
        self._reads = ThreadPoolExecutor(2, "manager-db-read")
        self._pings = ThreadPoolExecutor(1, "manager-db-ping")
        """Many readers would keep a ping waiting, and the database would pass for away."""

    @property
    def is_sqlite(self) -> bool:
        return self._url.get_backend_name() == "sqlite"

    async def open(self) -> None:
        """Bring the schema up to date.

        Raises SettingsError for a file that another manager has, and for a schema that this version can't use;
        StorageUnavailable where the database does not answer.
        """
        await self._run(self._writes, self._open)
        self._answered_at = time.monotonic()

    async def write(self, work: Callable[[Connection], T], *, brief: bool = False, leads: bool = False) -> T:
        """Return what `work` returns, once its transaction is on disk. Raises StorageUnavailable: nothing was done.

        `brief`: it takes a few milliseconds at most. `leads`: it is undone where another manager may lead by now.
        """
        self._check_answers()
        if not self.is_sqlite:
            return await self._run(self._writes, partial(self._lead_and if leads else self._transaction, work))
        write = _Write(work, brief, asyncio.get_running_loop().create_future())
        self._waiting.append(write)
        if self._committing is None or self._committing.done():
            self._committing = asyncio.create_task(self._commit_waiting())
        await write.committed
        if write.error is not None:
            raise write.error
        found: T = write.result
        return found

    async def ping(self) -> None:
        """Return when the database has answered. Raises StorageUnavailable."""
        await self._run(
            self._pings, partial(self._transaction, lambda connection: connection.execute(text("SELECT 1")))
        )
        self._answered_at = time.monotonic()

    def trouble(self) -> str | None:
        """Return that it has not answered for long, as a sentence."""
        seconds = time.monotonic() - self._answered_at
        return None if seconds < SILENT_S else f"{self._where} has not answered for {seconds:.0f} s"

    async def look(self, work: Callable[[Connection], T]) -> T:
        """Return what `work` reads. Raises StorageUnavailable."""
        self._check_answers()
        return await self._run(self._reads, partial(self._transaction, work))

    async def find(self, work: Callable[[Connection], T]) -> T:
        """Return what `work` finds by a key, in a few statements. Raises StorageUnavailable.

        SQLite is asked in the event loop: a transaction in a thread takes four times as long as such a statement.
        """
        if not self.is_sqlite:
            return await self.look(work)
        self._check_answers()
        with self._use_engine():
            if self._reader is None or self._reader_file != self._file_number:
                self._close_reader()
                self._reader, self._reader_file = self._make_engine(reads=True).connect(), self._file_number
            try:
                return work(self._reader)
            except AWAY:
                self._close_reader()
                raise

    @contextmanager
    def beside(self) -> Iterator[Connection]:
        """Yield a connection for reading beside the manager that has this database. Raises StorageUnavailable."""
        if self.is_sqlite and not self._file.is_file():
            raise StorageUnavailable(f"{self._where} is not there")
        engine = self._make_engine()
        try:
            with engine.begin() as connection:
                yield connection
        except AWAY as error:
            raise self._away(error) from error
        finally:
            engine.dispose()

    async def leads(self) -> bool:
        """Tell whether this manager releases tasks: the only one on SQLite, one of those on PostgreSQL.

        Raises StorageUnavailable; who led has to ask again then.
        """
        return self.is_sqlite or await self._run(self._writes, self._lead)

    async def close(self) -> None:
        if self._committing is not None:
            await asyncio.wait([self._committing])
        self._close_reader()
        await self._run(self._writes, self._close)
        for pool in (self._writes, self._reads, self._pings):
            pool.shutdown(wait=False, cancel_futures=pool is not self._writes)

    def _check_answers(self) -> None:
        if (trouble := self.trouble()) is not None:
            raise StorageUnavailable(trouble)

    async def _run(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    async def _commit_waiting(self) -> None:
        """Commit all that wait, and those that come meanwhile. One that raises is undone alone."""
        while self._waiting:
            writes: list[_Write] = []
            try:
                connection = await self._run(self._writes, self._begin)
                writes = [self._waiting.popleft() for _ in range(len(self._waiting))]
                make = partial(self._make, connection, writes)
                if all(write.brief for write in writes):
                    make()
                else:
                    await self._run(self._writes, make)
                await self._run(self._writes, partial(self._commit, connection))
            except Exception as error:
                writes = writes or [self._waiting.popleft() for _ in range(len(self._waiting))]
                for write in writes:
                    write.error = error
            for write in writes:
                if not write.committed.done():
                    write.committed.set_result(None)

    def _begin(self) -> Connection:
        """Begin a transaction that writes: in a thread, for it may have to wait for the lock of another program."""
        with self._use_engine() as engine:
            connection = engine.connect().execution_options(**WRITES)
            try:
                connection.begin()
            except BaseException:
                connection.close()
                raise
            return connection

    def _make(self, connection: Connection, writes: Iterable[_Write]) -> None:
        try:
            for write in writes:
                try:
                    with connection.begin_nested():
                        write.result = write.work(connection)
                except AWAY:
                    raise
                except Exception as error:
                    write.error = error
        except AWAY as error:
            connection.close()
            raise self._away(error) from error

    def _commit(self, connection: Connection) -> None:
        with connection, self._use_engine():
            connection.commit()

    def _transaction(self, work: Callable[[Connection], T]) -> T:
        with self._use_engine() as engine, engine.begin() as connection:
            return work(connection)

    @contextmanager
    def _use_engine(self) -> Iterator[Engine]:
        """Yield the engine, for its file as it is now. Raises StorageUnavailable for all that shows it to be away."""
        assert self._engine is not None, "open() comes first"
        try:
            if self.is_sqlite:
                self._check_file(self._engine)
            yield self._engine
        except AWAY as error:
            raise self._away(error) from error

    def _check_file(self, engine: Engine) -> None:
        """Let go of connections to a file that another one took the place of. Raises StorageUnavailable for none."""
        try:
            number = self._file.stat().st_ino
        except FileNotFoundError:
            raise StorageUnavailable(f"{self._where} is gone: put it back, or start the manager anew") from None
        if number != self._file_number:
            self._file_number = number
            engine.dispose()

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
            reader.engine.dispose()

    def _open(self) -> None:
        if self.is_sqlite:
            self._lock(self._file.absolute())
        self._engine = self._make_engine()
        try:
            with self._engine.begin() as connection:
                if not self.is_sqlite:
                    connection.execute(text("SET LOCAL statement_timeout = 0"))  # a migration may take minutes
                    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK + 1})
                self._migrate(connection)
        except AWAY as error:
            raise self._away(error) from error

    def _make_engine(self, *, reads: bool = False) -> Engine:
        """`reads`: for reading alone, outside of transactions."""
        if not self.is_sqlite:
            options = f"-c statement_timeout={ANSWERS_WITHIN_MS} {KEEPALIVE}"
            arguments = {"connect_timeout": CONNECT_S, "tcp_user_timeout": 1000 * CONNECT_S, "options": options}
            return create_engine(self._url, pool_size=4, pool_pre_ping=True, connect_args=arguments)
        engine = create_engine(self._url, pool_size=4, connect_args={"timeout": 1 if reads else 30})

        @event.listens_for(engine, "connect")
        def prepare(connection: Any, _: Any) -> None:
            connection.isolation_level = None  # transactions begin where SQLAlchemy says so, not at the first INSERT
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"PRAGMA {'query_only=ON' if reads else 'synchronous=FULL'}")

        if reads:
            return engine

        @event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            writes = connection.get_execution_options().get("writes")
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

        return engine

    def _lock(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock_file = path.with_name(f"{path.name}.lock").open("ab")
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingsError(
                f"another manager works on {path}: stop it, or give several managers a PostgreSQL (RATCHET_MANAGER_DB)"
            ) from None
        except OSError as error:
            raise SettingsError(f"{path} can't be opened: {error.strerror}: see RATCHET_MANAGER_DB") from None

    def _migrate(self, connection: Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
        config.attributes["connection"] = connection
        known = {one.revision for one in ScriptDirectory.from_config(config).walk_revisions()}
        tables = set(inspect(connection).get_table_names())
        found = set()
        if "alembic_version" in tables:
            found = set(connection.execute(text("SELECT version_num FROM alembic_version")).scalars())
        if newer := found - known:
            raise SettingsError(
                f"{self._where} has the schema {', '.join(sorted(newer))}, which this version does not know: a newer "
                f"manager made it. Install that version, or restore the backup from before"
            )
        if not found and tables & set(METADATA.tables):
            raise self._half_migrated("it has tables, but says nothing of its version")
        command.upgrade(config, "head")
        self._check_columns(connection)

    def _check_columns(self, connection: Connection) -> None:
        inspector = inspect(connection)
        there = {name: {one["name"] for one in inspector.get_columns(name)} for name in inspector.get_table_names()}
        for table in METADATA.tables.values():
            if missing := {column.name for column in table.columns} - there.get(table.name, set()):
                raise self._half_migrated(f"table {table.name} lacks {', '.join(sorted(missing))}")

    def _half_migrated(self, what: str) -> SettingsError:
        return SettingsError(f"{self._where} is half migrated ({what}): restore it from a backup, or name a new one")

    def _lead(self) -> bool:
        assert self._engine is not None
        if self._leading is None:
            with self._use_engine() as engine:
                connection = engine.connect()
                if not connection.execute(text("SELECT pg_try_advisory_lock(:lock)"), {"lock": LOCK}).scalar():
                    connection.close()
                    return False
                connection.commit()
                self._leading = connection
        self._lead_and(lambda connection: connection.execute(text("SELECT 1")))
        return True

    def _lead_and(self, work: Callable[[Connection], T]) -> T:
        """Make a transaction of the session that has the lock: nobody else has it before both have ended."""
        leading = self._leading
        assert leading is not None, "leads() comes first"
        try:
            with leading.begin():
                return work(leading)
        except AWAY as error:
            self._leading = None
            leading.invalidate()  # its session may live, with the lock
            raise self._away(error) from error

    def _close(self) -> None:
        if self._leading is not None:
            self._leading.close()
        if self._engine is not None:
            self._engine.dispose()
        if self._lock_file is not None:
            self._lock_file.close()

    @property
    def _where(self) -> str:
        return f"the manager's database {self._url.render_as_string(hide_password=True)}"

    def _away(self, error: Exception) -> StorageUnavailable:
        reason = str(getattr(error, "orig", None) or error).strip().split("\n")[0]
        return StorageUnavailable(f"{self._where} does not answer: {reason}. Nothing is lost; it is tried again")
