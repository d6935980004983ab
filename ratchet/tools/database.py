"""SQLite databases of the workspace: 9 operations.

A database is read whole through `Tree` and opened in memory, so no statement reaches a file. Each statement runs under
an authorizer with a list of what its role may do, and for so many seconds. What a change leaves is written back at
once, whole or not at all, while SQLite's own lock on the file is held, so that no other program's change is lost.
Left out: databases in WAL mode that have changes waiting, and those another program has left in the middle of a change.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from ratchet.tools.operation import Answer, Effect, Subject, ToolError, WorkspacePath
from ratchet.tools.policy import Database
from ratchet.tools.tree import require_not_git
from ratchet.tools.workshop import Workshop

DATABASE = Subject("database")

Sql = Annotated[str, StringConstraints(min_length=1, max_length=50_000)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Value = str | int | float | bool | None
Parameters = Annotated[tuple[Value, ...], Field(max_length=900, description="For the `?` of the statement, in order.")]
Row = dict[Name, Value]

HEADER = b"SQLite format 3\0"
WAL = 2
LOCK_BYTES = (0x40000000, 512)
"""Where SQLite locks a file: PENDING, RESERVED and SHARED."""
STEPS = 2000
MOST_VALUE = 256 * 1024
"""Bytes of a value, and of a row: what one function can be busy with before the clock is looked at again."""
MOST_PATTERN = 200
"""Bytes of a pattern of LIKE or GLOB, which take time by its square."""
SHOWN = 2000
"""Characters of a value."""


class Role(Enum):
    READ = "read"
    WRITE = "write"
    SCHEMA = "schema"


ACTIONS: Mapping[Role, frozenset[int]] = {
    Role.READ: frozenset(
        {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
    ),
}
WRITES = frozenset({sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE})
TABLES = frozenset({sqlite3.SQLITE_CREATE_TABLE, sqlite3.SQLITE_CREATE_INDEX, sqlite3.SQLITE_REINDEX})
PRAGMAS = frozenset({"table_info", "table_xinfo", "index_list", "index_info", "foreign_key_list", "foreign_keys"})
"""Those that tell of a table; asked by this module alone."""
_FUNCTIONS = """
    abs avg ceil ceiling char coalesce count cume_dist date datetime dense_rank exp first_value floor glob
    group_concat hex ifnull iif instr json json_array json_array_length json_each json_extract json_group_array
    json_group_object json_insert json_object json_patch json_quote json_remove json_replace json_set json_tree
    json_type json_valid julianday lag last_value lead length like likelihood likely ln log log10 log2 lower ltrim
    max min mod nth_value ntile nullif percent_rank pi pow power quote radians random rank replace round row_number
    rtrim sign sqrt strftime string_agg substr substring sum time total trim trunc typeof unicode unixepoch unlikely
    upper -> ->> last_insert_rowid changes total_changes
"""
FUNCTIONS = frozenset(_FUNCTIONS.split())
"""SQLite's own but for those that can be busy for minutes where no clock is looked at, such as printf."""
OWN_TABLES = "sqlite_"
SCHEMA_TABLES = ("sqlite_master", "sqlite_schema")


@DATABASE.operation(Effect.READS)
async def db_tables(at: Workshop, database: WorkspacePath) -> Answer:
    """List the tables and views of a SQLite database, each with its number of rows."""

    def listed(connection: sqlite3.Connection) -> list[dict[str, Any]]:
        found = _all(connection, "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name")
        return [
            {"name": name, "kind": kind, "rows": _all(connection, f"SELECT count(*) FROM {_quoted(name)}")[0][0]}
            for name, kind in found
            if not name.lower().startswith(OWN_TABLES)
        ]

    return {"tables": await at.look(_reading, at, database, listed)}


@DATABASE.operation(Effect.READS)
async def db_describe(at: Workshop, database: WorkspacePath, table: Name) -> Answer:
    """Describe a table: columns with types, keys, indexes, and the statement that made it."""

    def described(connection: sqlite3.Connection) -> Answer:
        sql = _table(connection, table)
        columns = _all(connection, f"PRAGMA table_info({_quoted(table)})")
        foreign = _all(connection, f"PRAGMA foreign_key_list({_quoted(table)})")
        indexes = _all(connection, f"PRAGMA index_list({_quoted(table)})")
        return {
            "table": table,
            "columns": [
                {"name": name, "type": kind, "not_null": bool(needed), "default": default, "primary_key": bool(key)}
                for _, name, kind, needed, default, key in columns
            ],
            "foreign_keys": [{"column": one[3], "table": one[2], "to": one[4]} for one in foreign],
            "indexes": [{"name": one[1], "unique": bool(one[2])} for one in indexes],
            "sql": sql,
        }

    return await at.look(_reading, at, database, described)


@DATABASE.operation(Effect.READS)
async def db_query(at: Workshop, database: WorkspacePath, sql: Sql, parameters: Parameters = ()) -> Answer:
    """Run one SELECT (or WITH … SELECT). Give values as `parameters` for `?`, not in the text."""
    return await at.look(
        _reading, at, database, lambda connection: _rows(connection, sql, parameters, at.policy.database)
    )


@DATABASE.operation(Effect.READS)
async def db_explain(at: Workshop, database: WorkspacePath, sql: Sql, parameters: Parameters = ()) -> Answer:
    """Say how SQLite would run a SELECT: which indexes it uses, which tables it goes through."""

    def explained(connection: sqlite3.Connection) -> Answer:
        plan = _all(connection, f"EXPLAIN QUERY PLAN {sql}", parameters)
        return {"plan": [str(row[-1]) for row in plan]}

    return await at.look(_reading, at, database, explained)


@DATABASE.operation(Effect.READS)
async def db_sample(
    at: Workshop, database: WorkspacePath, table: Name, count: Annotated[int, Field(ge=1, le=100)] = 5
) -> Answer:
    """Show the number of rows of a table, and some of them."""

    def sampled(connection: sqlite3.Connection) -> Answer:
        _table(connection, table)
        rows = _all(connection, f"SELECT count(*) FROM {_quoted(table)}")[0][0]
        sample = _rows(connection, f"SELECT * FROM {_quoted(table)} LIMIT {count}", (), at.policy.database)
        return {"table": table, "count": rows, **sample}

    return await at.look(_reading, at, database, sampled)


@DATABASE.operation(Effect.WRITES, private=("rows",))
async def db_insert(
    at: Workshop,
    database: WorkspacePath,
    table: Name,
    rows: Annotated[tuple[Row, ...], Field(min_length=1, max_length=1000)],
) -> Answer:
    """Insert rows into a table, all or none. Each row is an object of columns and values."""

    def inserted(connection: sqlite3.Connection) -> int:
        _table(connection, table)
        for row in rows:
            columns, marks = ", ".join(map(_quoted, row)), ", ".join("?" for _ in row)
            into = f"({columns}) VALUES ({marks})" if row else "DEFAULT VALUES"
            _all(connection, f"INSERT INTO {_quoted(table)} {into}", tuple(row.values()))
        return len(rows)

    return {"table": table, "inserted": await at.change(_writing, at, database, inserted, Role.WRITE)}


@DATABASE.operation(Effect.WRITES, private=("values", "parameters"))
async def db_update(
    at: Workshop,
    database: WorkspacePath,
    table: Name,
    values: Annotated[Row, Field(min_length=1, description="Columns and their new values.")],
    where: Annotated[Sql, Field(description="Condition in SQL, such as `id = ?`; `1` for all rows.")],
    parameters: Parameters = (),
) -> Answer:
    """Update the rows of a table that a condition holds for."""

    def updated(connection: sqlite3.Connection) -> int:
        _table(connection, table)
        sets = ", ".join(f"{_quoted(name)} = ?" for name in values)
        given = (*values.values(), *parameters)
        return _changed(connection, f"UPDATE {_quoted(table)} SET {sets} WHERE ({where}\n)", given, at.policy.database)

    return {"table": table, "updated": await at.change(_writing, at, database, updated, Role.WRITE)}


@DATABASE.operation(Effect.DESTROYS, private=("parameters",))
async def db_delete(
    at: Workshop,
    database: WorkspacePath,
    table: Name,
    where: Annotated[Sql, Field(description="Condition in SQL, such as `id = ?`; `1` for all rows.")],
    parameters: Parameters = (),
) -> Answer:
    """Delete the rows of a table that a condition holds for."""

    def deleted(connection: sqlite3.Connection) -> int:
        _table(connection, table)
        return _changed(connection, f"DELETE FROM {_quoted(table)} WHERE ({where}\n)", parameters, at.policy.database)

    return {"table": table, "deleted": await at.change(_writing, at, database, deleted, Role.WRITE)}


@DATABASE.operation(Effect.WRITES)
async def db_create_table(
    at: Workshop,
    database: WorkspacePath,
    sql: Annotated[Sql, Field(description="CREATE TABLE … or CREATE INDEX …, one statement.")],
) -> Answer:
    """Create a table or an index; the database is made where it is not there."""

    def created(connection: sqlite3.Connection) -> None:
        _all(connection, sql)

    await at.change(_writing, at, database, created, Role.SCHEMA, make=True)
    return {"database": database, "done": True}


def authorizer(role: Role) -> Callable[..., int]:
    """Answers SQLite for each thing that a statement would do. What is not on a list is refused."""

    def decide(action: int, one: str | None, two: str | None, schema: str | None, within: str | None) -> int:
        if schema not in (None, "main"):
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION:
            return sqlite3.SQLITE_OK if (two or "").lower() in FUNCTIONS else sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_PRAGMA:
            return sqlite3.SQLITE_OK if (one or "").lower() in PRAGMAS else sqlite3.SQLITE_DENY
        if action in ACTIONS[Role.READ]:
            return sqlite3.SQLITE_OK
        name = (one or "").lower()
        if action == sqlite3.SQLITE_UPDATE and name in SCHEMA_TABLES:
            return sqlite3.SQLITE_OK  # asked for json_each, too; SQLite itself refuses the statement of that name
        if role is Role.WRITE and action in WRITES and not name.startswith(OWN_TABLES):
            return sqlite3.SQLITE_OK
        if role is Role.SCHEMA and (action in TABLES or (action in WRITES and name in SCHEMA_TABLES)):
            return sqlite3.SQLITE_OK
        return sqlite3.SQLITE_DENY

    return decide


def _reading(at: Workshop, database: str, function: Callable[[sqlite3.Connection], Any]) -> Any:
    policy = at.policy.database
    raw = at.tree.read(database, policy.file_bytes)
    with _opened(at, database, raw, Role.READ) as connection:
        return function(connection)


def _writing(
    at: Workshop, database: str, function: Callable[[sqlite3.Connection], Any], role: Role, *, make: bool = False
) -> Any:
    require_not_git(database)
    if make and at.tree.find(database) is None:
        with _opened(at, database, b"", role) as connection:
            answer, content = _transaction(connection, function)
        at.tree.make_folder_of(database)
        at.tree.write(database, content)
        return answer
    with _locked(at, database):
        raw = at.tree.read(database, at.policy.database.file_bytes)
        if raw[18:20] == bytes((WAL, WAL)):
            raise ToolError(
                "conflict", f"{database} is in WAL mode, which is only read: PRAGMA journal_mode=DELETE first"
            )
        with _opened(at, database, raw, role) as connection:
            answer, content = _transaction(connection, function)
        at.tree.write(database, content)
        return answer


def _transaction(connection: sqlite3.Connection, function: Callable[[sqlite3.Connection], Any]) -> tuple[Any, bytes]:
    """The file it makes. Nothing of it is kept after an error: the connection is then closed without."""
    answer = function(connection)
    connection.set_authorizer(None)
    connection.commit()
    return answer, connection.serialize()


@contextmanager
def _locked(at: Workshop, database: str) -> Iterator[None]:
    """SQLite's exclusive lock, on the file as it was opened beneath the workspace."""
    descriptor = at.tree.open(database, os.O_RDWR)
    try:
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, *LOCK_BYTES, 0)
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, lock)
        except OSError:
            raise ToolError("conflict", f"another program is using {database}: try again when it is done") from None
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _opened(at: Workshop, database: str, raw: bytes, role: Role) -> Iterator[sqlite3.Connection]:
    """In memory. Raises ToolError for what SQLite, or the authorizer, does not like."""
    policy = at.policy.database
    if raw and not raw.startswith(HEADER):
        raise ToolError("arguments", f"{database} is no SQLite database")
    for ending in ("-wal", "-journal"):
        beside = at.tree.find(f"{database}{ending}")
        if beside is not None and beside.size > 0:
            raise ToolError(
                "conflict", f"{database}{ending} holds changes that are not in the file yet: close it elsewhere"
            )
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, cached_statements=0)
    until = time.monotonic() + policy.seconds
    try:
        if raw:
            connection.deserialize(raw[:18] + b"\1\1" + raw[20:])
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA max_page_count = {max(1, 2 * policy.file_bytes // 4096)}")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_VALUE)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MOST_PATTERN)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 200)
        connection.setlimit(sqlite3.SQLITE_LIMIT_VDBE_OP, 1_000_000)
        if role is not Role.READ:
            connection.execute("BEGIN")
        connection.set_authorizer(authorizer(role))
        connection.set_progress_handler(lambda: time.monotonic() > until, STEPS)
        yield connection
    except sqlite3.Error as error:
        raise _explained(error, role, policy) from None
    except (sqlite3.Warning, OverflowError, UnicodeError) as error:
        raise ToolError("arguments", f"{error}") from None
    finally:
        connection.close()


def _explained(error: sqlite3.Error, role: Role, policy: Database) -> ToolError:
    said = str(error)
    if "interrupted" in said:
        return ToolError("limit", f"the statement took more than {policy.seconds:g} s: ask for less, or use an index")
    if any(words in said for words in ("not authorized", "authorization denied", "prohibited", "too many attached")):
        return ToolError(
            "policy",
            f"{said}: this operation may only {role.value}. db_query takes SELECT with SQLite's plain functions; "
            "db_insert, db_update and db_delete change rows, db_create_table makes tables; nothing else is done",
        )
    if "one statement" in said:
        return ToolError("arguments", "give one statement only")
    if "malformed" in said or "not a database" in said:
        return ToolError("failed", f"the database is damaged: {said}")
    return ToolError("failed", f"SQLite says: {said}")


def _all(connection: sqlite3.Connection, sql: str, parameters: tuple[Value, ...] = ()) -> list[tuple[Any, ...]]:
    return connection.execute(sql, parameters).fetchall()


def _rows(connection: sqlite3.Connection, sql: str, parameters: tuple[Value, ...], policy: Database) -> Answer:
    cursor = connection.execute(sql, parameters)
    if cursor.description is None:
        raise ToolError("arguments", "that gives no rows: a query is a SELECT")
    rows = cursor.fetchmany(policy.rows + 1)
    return {
        "columns": [column[0] for column in cursor.description],
        "rows": [[_value(value) for value in row] for row in rows[: policy.rows]],
        "more": len(rows) > policy.rows,
    }


def _changed(connection: sqlite3.Connection, sql: str, parameters: tuple[Value, ...], policy: Database) -> int:
    count = connection.execute(sql, parameters).rowcount
    if count > policy.changed_rows:
        raise ToolError(
            "limit", f"that would change {count:,} rows, more than {policy.changed_rows:,}: nothing was changed"
        )
    return count


def _table(connection: sqlite3.Connection, table: str) -> str:
    """The statement that made it. Raises ToolError where there is none of that name."""
    found = _all(connection, "SELECT sql FROM sqlite_master WHERE type IN ('table', 'view') AND name = ?", (table,))
    if not found or table.lower().startswith(OWN_TABLES):
        raise ToolError("not_found", f"there is no table {table!r}: db_tables lists them")
    return str(found[0][0])


def _quoted(name: str) -> str:
    """An identifier, whatever it has in it."""
    if "\0" in name:
        raise ToolError("arguments", "a name has no NUL in it")
    return '"' + name.replace('"', '""') + '"'


def _value(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"blob": value[:64].hex(), "bytes": len(value)}
    if (isinstance(value, float) and value != value) or value in (float("inf"), float("-inf")):
        return str(value)
    return value[:SHOWN] if isinstance(value, str) else value
