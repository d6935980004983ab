"""SQLite databases of the workspace: 9 operations.

A database is read whole through `Tree` and opened in memory by a child process (sqlite_child.py), so no statement
reaches a file. Each runs under an authorizer with a list of what its role may do, within so many seconds and so much
memory. What a change leaves is written back at once, whole or not at all, while SQLite's own lock on the file is held,
so that no other program's change is lost. Left out: databases in WAL mode that have changes waiting, and those another
program has left in the middle of a change.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from workbench.tools.operation import Answer, Effect, Subject, ToolError, WorkspacePath, object_of
from workbench.tools.policy import MIB
from workbench.tools.tree import require_not_git
from workbench.tools.workshop import Workshop

DATABASE = Subject("database")

Sql = Annotated[str, StringConstraints(min_length=1, max_length=50_000)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Value = str | int | float | bool | None
Parameters = Annotated[tuple[Value, ...], Field(max_length=900, description="For the `?` of the statement, in order.")]
Row = dict[Name, Value]

HEADER = b"SQLite format 3\0"
WAL = 2
LOCK_BYTES = (0x40000000, 512)
"""The bytes at which SQLite locks a file: PENDING, RESERVED and SHARED."""
CHILD = Path(__file__).parent / "sqlite_child.py"
OWN_MEMORY = 128 * MIB
"""Memory that a child needs besides what a database and its changes may."""
ENDED_AFTER_S = 1.0
"""The time, after a statement's own, until a child that did not end is killed."""


Role = Literal["read", "write", "schema"]


@DATABASE.operation(Effect.READS)
async def db_tables(at: Workshop, database: WorkspacePath) -> Answer:
    """List the tables and views of a SQLite database, each with its number of rows."""

    return {"tables": await _read(at, database, "tables")}


@DATABASE.operation(Effect.READS)
async def db_describe(at: Workshop, database: WorkspacePath, table: Name) -> Answer:
    """Describe a table: columns with types, keys, indexes, and the statement that made it."""

    described: Answer = await _read(at, database, "describe", table=table)
    return described


@DATABASE.operation(Effect.READS)
async def db_query(at: Workshop, database: WorkspacePath, sql: Sql, parameters: Parameters = ()) -> Answer:
    """Run one SELECT (or WITH … SELECT). Give values as `parameters` for `?`, not in the text."""
    rows: Answer = await _read(at, database, "query", sql=sql, parameters=parameters, most=at.policy.database.rows)
    return rows


@DATABASE.operation(Effect.READS)
async def db_explain(at: Workshop, database: WorkspacePath, sql: Sql, parameters: Parameters = ()) -> Answer:
    """Say how SQLite would run a SELECT: which indexes it uses, which tables it goes through."""

    return {"plan": await _read(at, database, "explain", sql=sql, parameters=parameters)}


@DATABASE.operation(Effect.READS)
async def db_sample(
    at: Workshop, database: WorkspacePath, table: Name, count: Annotated[int, Field(ge=1, le=100)] = 5
) -> Answer:
    """Show the number of rows of a table, and some of them."""

    count = min(count, at.policy.database.rows)
    sampled: Answer = await _read(at, database, "sample", table=table, count=count)
    return sampled


@DATABASE.operation(Effect.WRITES, private=("rows",))
async def db_insert(
    at: Workshop,
    database: WorkspacePath,
    table: Name,
    rows: Annotated[tuple[Row, ...], Field(min_length=1, max_length=1000)],
) -> Answer:
    """Insert rows into a table, all or none. Each row is an object of columns and values."""

    return {"table": table, "inserted": await _change(at, database, "insert", "write", table=table, rows=rows)}


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

    given = {"table": table, "values": values, "where": where, "parameters": parameters}
    updated = await _change(at, database, "update", "write", **given, most=at.policy.database.changed_rows)
    return {"table": table, "updated": updated}


@DATABASE.operation(Effect.DESTROYS, private=("parameters",))
async def db_delete(
    at: Workshop,
    database: WorkspacePath,
    table: Name,
    where: Annotated[Sql, Field(description="Condition in SQL, such as `id = ?`; `1` for all rows.")],
    parameters: Parameters = (),
) -> Answer:
    """Delete the rows of a table that a condition holds for."""

    given = {"table": table, "where": where, "parameters": parameters}
    deleted = await _change(at, database, "delete", "write", **given, most=at.policy.database.changed_rows)
    return {"table": table, "deleted": deleted}


@DATABASE.operation(Effect.WRITES)
async def db_create_table(
    at: Workshop,
    database: WorkspacePath,
    sql: Annotated[Sql, Field(description="CREATE TABLE … or CREATE INDEX …, one statement.")],
) -> Answer:
    """Create a table or an index; the database is made where it is not there."""

    await _change(at, database, "create", "schema", sql=sql)
    return {"database": database, "done": True}


async def _read(at: Workshop, database: str, do: str, **given: Any) -> Any:
    def read() -> Any:
        raw = at.tree.read(database, at.policy.database.file_bytes)
        return _carried_out(at, database, raw, do, "read", given)[0]

    return await at.look(read)


async def _change(at: Workshop, database: str, do: str, role: Role, **given: Any) -> Any:
    require_not_git(database)

    def change() -> Any:
        if role == "schema" and at.tree.find(database) is None:
            answer, content = _carried_out(at, database, b"", do, role, given)
            at.tree.make_folder_of(database)
            at.tree.write(database, content)
            return answer
        with _lock_database(at, database):
            raw = at.tree.read(database, at.policy.database.file_bytes)
            if raw[18:20] == bytes((WAL, WAL)):
                raise ToolError(
                    "conflict", f"{database} is in WAL mode, which is only read: PRAGMA journal_mode=DELETE first"
                )
            answer, content = _carried_out(at, database, raw, do, role, given)
            at.tree.write(database, content)
            return answer

    return await at.change(change)


@contextmanager
def _lock_database(at: Workshop, database: str) -> Iterator[None]:
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


def _carried_out(
    at: Workshop, database: str, raw: bytes, do: str, role: Role, given: Mapping[str, Any]
) -> tuple[Any, bytes]:
    """The answer, and the file that a change makes. Raises ToolError for what SQLite, or its authorizer, refuses."""
    policy = at.policy.database
    if raw and not raw.startswith(HEADER):
        raise ToolError("arguments", f"{database} is no SQLite database")
    for ending in ("-wal", "-journal"):
        beside = at.tree.find(f"{database}{ending}")
        if beside is not None and beside.size > 0:
            raise ToolError(
                "conflict", f"{database}{ending} holds changes that are not in the file yet: close it elsewhere"
            )
    memory, pages = OWN_MEMORY + 6 * policy.file_bytes, max(1, 2 * policy.file_bytes // 4096)
    order = {"do": do, "role": role, "given": given, "seconds": policy.seconds, "memory": memory, "pages": pages}
    ended = b""
    with suppress(subprocess.TimeoutExpired):
        ended = subprocess.run(
            [sys.executable, "-I", "-S", CHILD],
            input=json.dumps(order).encode() + b"\n" + raw,
            capture_output=True,
            check=False,
            env={},
            timeout=policy.seconds + ENDED_AFTER_S,
        ).stdout
    head, _, content = ended.partition(b"\n")
    reply = object_of(head)
    if "answer" in reply:
        return reply["answer"], content
    most = f"{policy.seconds:g} s or {memory // MIB:,} MiB of memory"
    raise ToolError(*reply.get("error", ("limit", f"the statement took more than {most}: ask for less at once")))
