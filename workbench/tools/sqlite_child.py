"""Runs alone, as `python3 -I -S sqlite_child.py`: one order on a SQLite database, which comes and goes as bytes.

On stdin a line of JSON (the order), then the database; on stdout a line of JSON (the answer, or an error's kind and
sentence), then the database as a change left it. A statement can take any memory and any time before SQLite first looks
at a clock, so this process holds itself to so much of both, and whoever started it kills it at its deadline. It knows
nothing of this project.
"""

import json
import math
import resource
import sqlite3
import sys
import time
from collections.abc import Callable
from typing import Any

READS = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
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
STEPS = 2000
MOST_VALUE = 256 * 1024
"""Bytes of a value, and of a row: what one function can be busy with before the clock is looked at again."""
MOST_PATTERN = 200
"""Bytes of a pattern of LIKE or GLOB, which take time by its square."""
SHOWN = 2000
"""Characters of a value."""

Rows = dict[str, Any]


class Refused(Exception):
    """The kind of an error, and its sentence."""


def tables(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    found = all_of(connection, "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name")
    return [
        {"name": name, "kind": kind, "rows": all_of(connection, f"SELECT count(*) FROM {quote_name(name)}")[0][0]}
        for name, kind in found
        if not name.lower().startswith(OWN_TABLES)
    ]


def describe(connection: sqlite3.Connection, table: str) -> dict[str, Any]:
    sql = statement_of(connection, table)
    columns = all_of(connection, f"PRAGMA table_info({quote_name(table)})")
    foreign = all_of(connection, f"PRAGMA foreign_key_list({quote_name(table)})")
    indexes = all_of(connection, f"PRAGMA index_list({quote_name(table)})")
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


def query(connection: sqlite3.Connection, sql: str, parameters: list[Any], most: int) -> Rows:
    cursor = connection.execute(sql, parameters)
    if cursor.description is None:
        raise Refused("arguments", "that gives no rows: a query is a SELECT")
    rows = cursor.fetchmany(most + 1)
    return {
        "columns": [column[0] for column in cursor.description],
        "rows": [[json_value(value) for value in row] for row in rows[:most]],
        "more": len(rows) > most,
    }


def explain(connection: sqlite3.Connection, sql: str, parameters: list[Any]) -> list[str]:
    return [str(row[-1]) for row in all_of(connection, f"EXPLAIN QUERY PLAN {sql}", parameters)]


def sample(connection: sqlite3.Connection, table: str, count: int) -> dict[str, Any]:
    statement_of(connection, table)
    rows = all_of(connection, f"SELECT count(*) FROM {quote_name(table)}")[0][0]
    return {
        "table": table,
        "count": rows,
        **query(connection, f"SELECT * FROM {quote_name(table)} LIMIT {count}", [], count),
    }


def insert(connection: sqlite3.Connection, table: str, rows: list[dict[str, Any]]) -> int:
    statement_of(connection, table)
    for row in rows:
        columns, marks = ", ".join(map(quote_name, row)), ", ".join("?" for _ in row)
        into = f"({columns}) VALUES ({marks})" if row else "DEFAULT VALUES"
        all_of(connection, f"INSERT INTO {quote_name(table)} {into}", list(row.values()))
    return len(rows)


def update(
    connection: sqlite3.Connection, table: str, values: dict[str, Any], where: str, parameters: list[Any], most: int
) -> int:
    statement_of(connection, table)
    sets = ", ".join(f"{quote_name(name)} = ?" for name in values)
    given = [*values.values(), *parameters]
    return change(connection, f"UPDATE {quote_name(table)} SET {sets} WHERE ({where}\n)", given, most)


def delete(connection: sqlite3.Connection, table: str, where: str, parameters: list[Any], most: int) -> int:
    statement_of(connection, table)
    return change(connection, f"DELETE FROM {quote_name(table)} WHERE ({where}\n)", parameters, most)


def create(connection: sqlite3.Connection, sql: str) -> None:
    all_of(connection, sql)


ORDERS: dict[str, Callable[..., Any]] = {
    one.__name__: one for one in (tables, describe, query, explain, sample, insert, update, delete, create)
}


def authorizer(role: str) -> Callable[..., int]:
    """Answers SQLite for each thing that a statement would do. What is not on a list is refused."""

    def decide(action: int, one: str | None, two: str | None, schema: str | None, within: str | None) -> int:
        if schema not in (None, "main"):
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION:
            return sqlite3.SQLITE_OK if (two or "").lower() in FUNCTIONS else sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_PRAGMA:
            return sqlite3.SQLITE_OK if (one or "").lower() in PRAGMAS else sqlite3.SQLITE_DENY
        if action in READS:
            return sqlite3.SQLITE_OK
        name = (one or "").lower()
        if action == sqlite3.SQLITE_UPDATE and name in SCHEMA_TABLES:
            return sqlite3.SQLITE_OK  # asked for json_each, too; SQLite itself refuses the statement of that name
        if role == "write" and action in WRITES and not name.startswith(OWN_TABLES):
            return sqlite3.SQLITE_OK
        if role == "schema" and (action in TABLES or (action in WRITES and name in SCHEMA_TABLES)):
            return sqlite3.SQLITE_OK
        return sqlite3.SQLITE_DENY

    return decide


def carry_out(order: dict[str, Any], raw: bytearray) -> tuple[Any, bytes]:
    """The answer, and the database that a change made. Raises what SQLite raises, and Refused."""
    role, until = order["role"], time.monotonic() + order["seconds"]
    connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
    if raw:
        raw[18:20] = b"\1\1"
        connection.deserialize(raw)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute(f"PRAGMA max_page_count = {order['pages']}")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_VALUE)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MOST_PATTERN)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 200)
    connection.setlimit(sqlite3.SQLITE_LIMIT_VDBE_OP, 1_000_000)
    if role != "read":
        connection.execute("BEGIN")
    connection.set_authorizer(authorizer(role))
    connection.set_progress_handler(lambda: time.monotonic() > until, STEPS)
    answer = ORDERS[order["do"]](connection, **order["given"])
    if role == "read":
        return answer, b""
    connection.set_authorizer(None)
    connection.commit()
    return answer, connection.serialize()


def fault(error: sqlite3.Error, order: dict[str, Any]) -> tuple[str, str]:
    """The kind of what SQLite says, and a sentence."""
    said = str(error)
    if "interrupted" in said:
        return "limit", f"the statement took more than {order['seconds']:g} s: ask for less, or use an index"
    if any(words in said for words in ("not authorized", "authorization denied", "prohibited", "too many attached")):
        return (
            "policy",
            f"{said}: this operation may only {order['role']}. db_query takes SELECT with SQLite's plain functions; "
            "db_insert, db_update and db_delete change rows, db_create_table makes tables; nothing else is done",
        )
    if "one statement" in said:
        return "arguments", "give one statement only"
    if "malformed" in said or "not a database" in said:
        return "failed", f"the database is damaged: {said}"
    return "failed", f"SQLite says: {said}"


def all_of(connection: sqlite3.Connection, sql: str, parameters: list[Any] | tuple[()] = ()) -> list[tuple[Any, ...]]:
    return connection.execute(sql, parameters).fetchall()


def change(connection: sqlite3.Connection, sql: str, parameters: list[Any], most: int) -> int:
    count = connection.execute(sql, parameters).rowcount
    if count > most:
        raise Refused("limit", f"that would change {count:,} rows, more than {most:,}: nothing was changed")
    return count


def statement_of(connection: sqlite3.Connection, table: str) -> str:
    """The statement that made a table. Raises Refused where there is none of that name."""
    found = all_of(connection, "SELECT sql FROM sqlite_master WHERE type IN ('table', 'view') AND name = ?", [table])
    if not found or table.lower().startswith(OWN_TABLES):
        raise Refused("not_found", f"there is no table {table!r}: db_tables lists them")
    return str(found[0][0])


def quote_name(name: str) -> str:
    """An identifier, whatever it has in it."""
    if "\0" in name:
        raise Refused("arguments", "a name has no NUL in it")
    return '"' + name.replace('"', '""') + '"'


def json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"blob": value[:64].hex(), "bytes": len(value)}
    if (isinstance(value, float) and value != value) or value in (float("inf"), float("-inf")):
        return str(value)
    return value[:SHOWN] if isinstance(value, str) else value


def main() -> None:
    order = json.loads(sys.stdin.buffer.readline())
    seconds = math.ceil(order["seconds"]) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (order["memory"], order["memory"]))
    content = b""
    try:
        answer, content = carry_out(order, bytearray(sys.stdin.buffer.read()))
        reply = {"answer": answer}
    except Refused as error:
        reply = {"error": error.args}
    except sqlite3.Error as error:
        reply = {"error": fault(error, order)}
    except (sqlite3.Warning, OverflowError, UnicodeError) as error:
        reply = {"error": ("arguments", str(error))}
    sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n" + content)


main()
