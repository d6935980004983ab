"""The 9 operations on databases, and the attacks of SQL: none goes through, each is known to work without the guard."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.workbench.tools.world import Case, World, bad, good, hold, hostile

NOT_AUTHORIZED = "policy: this operation may only"


def rows(path: Path, sql: str = "SELECT * FROM people ORDER BY id") -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


PEOPLE = [(1, "Ann", 30), (2, "Bo", 40), (3, "Cy", 50)]


def planted(world: World) -> None:
    with contextlib.closing(sqlite3.connect(world.root / "x.db")) as connection:
        connection.executescript(
            """CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT NOT NULL, age INTEGER);
            CREATE TABLE cities (name TEXT UNIQUE, mayor REFERENCES people (id));
            CREATE INDEX by_age ON people (age);"""
        )
        connection.execute('CREATE TABLE "odd ""name""" (x)')
        connection.executemany("INSERT INTO people VALUES (?, ?, ?)", PEOPLE)
        connection.commit()
    with contextlib.closing(sqlite3.connect(world.outside / "secret.txt.db")) as connection:
        connection.execute("CREATE TABLE t (x)")
    (world.outside / "secret.txt.db").rename(world.root / "other.db")
    (world.root / "link.db").symlink_to(world.outside / "secret.txt")
    world.write("none.db", "hello, this is a text and no database")


def unchanged(world: World) -> None:
    assert rows(world.root / "x.db") == PEOPLE
    assert rows(world.root / "x.db", "SELECT count(*) FROM sqlite_master") == [(5,)]
    assert {path.name for path in world.root.iterdir()} == {"x.db", "other.db", "link.db", "none.db"}


def are(expected: list[tuple[Any, ...]]) -> Any:
    def check(world: World) -> None:
        assert rows(world.root / "x.db") == expected

    return check


def of(**arguments: Any) -> dict[str, Any]:
    return {"database": "x.db", **arguments}


def query(sql: str, expected: str | None = NOT_AUTHORIZED, name: str = "") -> Case:
    return hostile("db_query", of(sql=sql), expected, name=name, after=unchanged)


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
LEVELS = ",".join(f"t{one} AS (SELECT 1 FROM {','.join([f't{one - 1}'] * 8)})" for one in range(1, 10))
NESTED = f"WITH t0 AS (SELECT 1),{LEVELS} SELECT * FROM t9"
"""Some 400 characters that SQLite makes 8 ** 9 tables of before it first looks at a clock."""
CASES = [
    good("db_tables", of(), lambda it: {"name": "people", "kind": "table", "rows": 3} in it["tables"]),
    bad("db_tables", {"database": "none.db"}, "arguments: no SQLite database"),
    hostile("db_tables", {"database": "link.db"}, "policy: link"),
    hostile("db_tables", {"database": "../outside/secret.txt"}, "arguments: leads up", name="up"),
    good("db_describe", of(table="people"), lambda it: [one["name"] for one in it["columns"]] == ["id", "name", "age"]),
    good("db_describe", of(table='odd "name"'), lambda it: len(it["columns"]) == 1, name="quotes"),
    bad("db_describe", of(table="nobody"), "not_found: db_tables"),
    hostile("db_describe", of(table='people"); DROP TABLE people; --'), "not_found: ", after=unchanged),
    hostile("db_describe", of(table="sqlite_master"), "not_found: ", name="master"),
    good("db_query", of(sql="SELECT name FROM people WHERE age > ?", parameters=[35]), {"rows": [["Bo"], ["Cy"]]}),
    good(
        "db_query",
        of(sql="SELECT value, upper('x'), row_number() OVER (ORDER BY value) FROM json_each('[5, 4]')"),
        {"rows": [[4, "X", 1], [5, "X", 2]]},
        name="functions",
    ),
    bad("db_query", of(sql="SELECT colour FROM people"), "failed: no such column"),
    bad("db_query", of(sql="SELECT 1; SELECT 2"), "arguments: one statement", name="two"),
    query("ATTACH DATABASE 'other.db' AS o", name="attach"),
    query("VACUUM INTO 'copy.db'", name="vacuum-into"),
    query("SELECT load_extension('evil')", name="load-extension"),
    query("PRAGMA writable_schema = ON", name="writable-schema"),
    query("PRAGMA journal_mode = WAL", name="journal-mode"),
    query("PRAGMA temp_store_directory = '/tmp'", name="temp-store"),
    query("DELETE FROM people", name="delete"),
    query("WITH x AS (SELECT 1) INSERT INTO people SELECT 9, 'x', 1", name="insert"),
    query("CREATE TEMP TRIGGER t AFTER INSERT ON people BEGIN SELECT 1; END", name="trigger"),
    query("CREATE VIRTUAL TABLE v USING fts5(x)", name="virtual-table"),
    query("SELECT writefile('x', 'y')", "failed: no such function", name="writefile"),
    query("SELECT hex(randomblob(1000000000))", name="randomblob"),
    query("SELECT fts3_tokenizer('simple')", name="tokenizer"),
    query(ENDLESS, "limit: took more than", name="endless"),
    query(NESTED, "limit: took more than", name="nested"),
    query("DETACH DATABASE main", name="detach"),
    query("COMMIT", name="commit"),
    query("UPDATE sqlite_master SET sql = 'x'", "failed: may not be modified", name="master"),
    query("SELECT printf('%.*c', 900000000, 'x')", name="printf"),
    query(
        "SELECT 'aaa' LIKE replace('xxxxxxxxxx', 'x', '%a%a%a%a%a%a%a%a%a%a%a%a')", "failed: too complex", name="like"
    ),
    query(
        "SELECT replace(replace(replace(name || '"
        + "x" * 999
        + "', 'x', '"
        + "x" * 999
        + "'), 'x', 'xx'), 'x', 'y') FROM people",
        "failed: too big",
        name="huge",
    ),
    good("db_explain", of(sql="SELECT * FROM people WHERE age = 3"), lambda it: "by_age" in it["plan"][0]),
    bad("db_explain", of(sql="SELEKT"), "failed: syntax error"),
    hostile("db_explain", of(sql="DELETE FROM people"), NOT_AUTHORIZED, after=unchanged),
    hostile(
        "db_explain", of(sql="SELECT 1; DROP TABLE people"), "arguments: one statement", name="two", after=unchanged
    ),
    good("db_sample", of(table="people", count=1), {"count": 3, "rows": [[1, "Ann", 30]]}),
    bad("db_sample", of(table="people", count=0), "arguments: count"),
    hostile("db_sample", of(table="people; DROP TABLE people"), "not_found: ", after=unchanged),
    good(
        "db_insert",
        of(table="people", rows=[{"name": "Di", "age": 1}, {"name": "Ed"}]),
        {"inserted": 2},
        after=are([*PEOPLE, (4, "Di", 1), (5, "Ed", None)]),
    ),
    bad(
        "db_insert",
        of(table="people", rows=[{"name": "Di"}, {"id": 1, "name": "x"}]),
        "failed: UNIQUE",
        after=unchanged,
    ),
    hostile("db_insert", of(table="people", rows=[{'name") VALUES (1); --': 1}]), "failed: ", after=unchanged),
    hostile("db_insert", of(table="sqlite_master", rows=[{"sql": "x"}]), "not_found: ", name="master", after=unchanged),
    good(
        "db_update",
        of(table="people", values={"age": 0}, where="id = ?", parameters=[2]),
        {"updated": 1},
        after=are([PEOPLE[0], (2, "Bo", 0), PEOPLE[2]]),
    ),
    bad("db_update", of(table="people", values={"name": None}, where="1"), "failed: NOT NULL", after=unchanged),
    hostile(
        "db_update",
        of(table="people", values={"age": 1}, where="1); DROP TABLE people; --"),
        "arguments: one statement",
        after=unchanged,
    ),
    hostile(
        "db_update",
        of(table="people", values={"age": 1}, where="load_extension('x')"),
        NOT_AUTHORIZED,
        name="function",
        after=unchanged,
    ),
    good("db_delete", of(table="people", where="id = 1"), {"deleted": 1}, after=are(PEOPLE[1:])),
    bad("db_delete", of(table="people", where="colour = 1"), "failed: no such column", after=unchanged),
    hostile("db_delete", of(table="people", where="1) AND (SELECT randomblob(9)"), NOT_AUTHORIZED, after=unchanged),
    good(
        "db_create_table",
        of(sql="CREATE TABLE t (x INTEGER)"),
        {"done": True},
        after=lambda it: rows(it.root / "x.db", "SELECT * FROM t"),
    ),
    good(
        "db_create_table",
        {"database": "n/new.db", "sql": "CREATE TABLE t (x)"},
        {"done": True},
        name="new",
        after=lambda it: rows(it.root / "n/new.db", "SELECT * FROM t"),
    ),
    bad("db_create_table", of(sql="CREATE TABLE people (x)"), "failed: already exists", after=unchanged),
    hostile("db_create_table", of(sql="DROP TABLE people"), NOT_AUTHORIZED, after=unchanged),
    hostile(
        "db_create_table",
        of(sql="CREATE TRIGGER t AFTER INSERT ON people BEGIN DELETE FROM people; END"),
        NOT_AUTHORIZED,
        name="trigger",
        after=unchanged,
    ),
    hostile(
        "db_create_table",
        of(sql="UPDATE sqlite_master SET sql = 'x'"),
        "failed: may not be modified",
        name="master",
        after=unchanged,
    ),
    hostile("db_create_table", {"database": ".git/x.db", "sql": "CREATE TABLE t (x)"}, "policy: git's own", name="git"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_call(case: Case, tmp_path: Path) -> None:
    world = World(tmp_path, database={"seconds": 0.3})
    planted(world)

    await hold(case, world)
    await world.toolbox.close()


@pytest.mark.parametrize(
    "sql", ["ATTACH DATABASE '{0}/a.db' AS o; CREATE TABLE o.t (x)", "VACUUM INTO '{0}/b.db'", "DELETE FROM people"]
)
def test_without_the_guard_they_go_through(sql: str, tmp_path: Path) -> None:
    """The positive control: a database that was opened to be read writes files, where it is not `mode=ro` even rows."""
    path = tmp_path / "x.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE people (id); INSERT INTO people VALUES (1)")
    mode = "rw" if sql.startswith("DELETE") else "ro"
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode={mode}", uri=True, isolation_level=None)) as connection:
        connection.executescript(sql.format(tmp_path))

    assert len(list(tmp_path.iterdir())) == 2 or rows(path, "SELECT count(*) FROM people") == [(0,)]


HOLDS = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""


def holding(path: Path) -> subprocess.Popen[bytes]:
    """A program in the middle of a change of a database."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDS, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    return holder


async def test_a_database_that_another_program_changes_is_not_written(world: World) -> None:
    planted(world)
    holder = holding(world.root / "x.db")
    result = await world.call("db_delete", database="x.db", table="people", where="1")
    holder.communicate()

    assert (result.ok, result.content["error"]) == (False, "conflict")
    assert (await world.call("db_delete", database="x.db", table="people", where="1")).ok


async def test_a_hostile_schema_runs_nothing_of_its_own(world: World) -> None:
    """A view, a trigger and a default that call functions which are not on the list."""
    with contextlib.closing(sqlite3.connect(world.root / "x.db")) as connection:
        connection.executescript(
            """CREATE TABLE t (x, y DEFAULT (hex(randomblob(8)))); INSERT INTO t VALUES (1, 2);
            CREATE VIEW v AS SELECT hex(randomblob(8)) AS x;
            CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT load_extension('x'); END;"""
        )
    for name, arguments in (
        ("db_query", {"sql": "SELECT * FROM v"}),
        ("db_insert", {"table": "t", "rows": [{"x": 1}]}),
        ("db_insert", {"table": "t", "rows": [{"x": 1, "y": 1}]}),
    ):
        result = await world.call(name, database="x.db", **arguments)
        assert (result.ok, result.content.get("error")) == (False, "policy"), result.text


async def test_changes_that_wait_beside_the_file_are_not_passed_over(world: World) -> None:
    with contextlib.closing(sqlite3.connect(world.root / "x.db")) as connection:
        connection.executescript("PRAGMA journal_mode = WAL; CREATE TABLE t (x); INSERT INTO t VALUES (1)")
        result = await world.call("db_tables", database="x.db")
    assert (result.ok, result.content["error"]) == (False, "conflict")

    assert (await world.call("db_tables", database="x.db")).content["tables"] == [
        {"name": "t", "kind": "table", "rows": 1}
    ]
    assert (await world.call("db_delete", database="x.db", table="t", where="1")).content["error"] == "conflict"


async def test_more_rows_than_a_call_may_change_are_not_changed(tmp_path: Path) -> None:
    world = World(tmp_path, database={"changed_rows": 2})
    planted(world)

    result = await world.call("db_update", database="x.db", table="people", values={"age": 1}, where="1")
    assert (result.ok, result.content["error"]) == (False, "limit")
    unchanged(world)
    await world.toolbox.close()


async def test_a_statement_has_so_much_memory_and_no_more(tmp_path: Path) -> None:
    world = World(tmp_path, database={"seconds": 600, "file_bytes": 1 << 20})
    planted(world)

    result = await world.call("db_query", database="x.db", sql=NESTED)

    assert (result.ok, result.content["error"]) == (False, "limit")
    assert "134 MiB of memory" in result.content["says"]
    await world.toolbox.close()
