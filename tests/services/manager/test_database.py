"""The database that is away, another's, newer than the code, or half migrated."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError
from sqlalchemy import Connection, insert, select, text

from ratchet.service.errors import SettingsError
from services.manager.database import Database
from services.manager.ledger import quotas_of
from services.manager.settings import ManagerSettings
from services.manager.tables import jobs, quotas, tasks, usage
from tests.services.manager.managed import managed
from tests.waiting import settled, until

NEWER_INDEXES = ("jobs_by_tenant", "jobs_by_owner", "jobs_by_change", "jobs_by_age", "jobs_held", "tasks_by_end")


def tenants_of(connection: Connection) -> list[str]:
    return list(connection.execute(select(quotas.c.tenant)).scalars())


async def open_database(path: Path) -> None:
    database = Database(f"sqlite:///{path}")
    await database.open()
    await database.close()


async def test_two_managers_on_one_file_are_refused(tmp_path: Path) -> None:
    async with managed(tmp_path):
        with pytest.raises(SettingsError, match=r"another manager works on .*jobs\.sqlite: stop it, or .* PostgreSQL"):
            await open_database(tmp_path / "jobs.sqlite")


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE alembic_version SET version_num = '9999'", "has the schema 9999, which this version does not know"),
        ("DELETE FROM alembic_version", "is half migrated .it has tables, but says nothing of its version"),
        ("DROP TABLE tasks", "is half migrated .table tasks lacks attempt, body"),
        ("ALTER TABLE jobs DROP COLUMN reason", "is half migrated .table jobs lacks reason"),
    ],
)
async def test_a_schema_that_it_can_not_use_is_refused(tmp_path: Path, statement: str, says: str) -> None:
    await open_database(tmp_path / "jobs.sqlite")
    connection = sqlite3.connect(tmp_path / "jobs.sqlite")
    connection.execute(statement)
    connection.commit()
    connection.close()
    with pytest.raises(SettingsError, match=says):
        await open_database(tmp_path / "jobs.sqlite")


async def test_jobs_of_before_the_quota_of_bytes_count_their_bytes(tmp_path: Path) -> None:
    await check_old_jobs_count_their_bytes(f"sqlite:///{tmp_path}/jobs.sqlite")


async def check_old_jobs_count_their_bytes(url: str) -> None:
    """A job of the schema 0006, with text outside ASCII, counts after the migration as one that comes after it; and
    what was used before the schema 0008 counts for the limits of its tenant."""
    database = Database(url)
    await database.open()
    job = {
        "job_id": "j",
        "tenant": "t",
        "agent_id": "a",
        "state": "open",
        "asked": "{}",
        "priority": 1,
        "kind": "tasks",
    }
    times = {"created_at": 0, "changed_at": 0, "served_at": 0, "deadline": 0}
    await database.write(lambda connection: connection.execute(insert(jobs).values(**job, **times)))
    texts = [{"body": "naïve", "result": "€"}, {"body": "ab", "result": None}]
    rows = [{"job_id": "j", "n": n, "state": "ok", **one} for n, one in enumerate(texts)]
    await database.write(lambda connection: connection.execute(insert(tasks), rows))
    used = {"tasks": 1, "prompt_tokens": 2, "sampled_tokens": 3, "spent": 4}
    of_jobs = [{"day": "2026-01-01", "tenant": "t", "agent_id": "a", "job_id": job_id} | used for job_id in ("j", "k")]
    await database.write(lambda connection: connection.execute(insert(usage), of_jobs))
    for statement in (
        "DROP TABLE used_ids",
        "DROP TABLE daily_usage",
        *(f"DROP INDEX {name}" for name in NEWER_INDEXES),
        "CREATE INDEX jobs_by_tenant ON jobs (tenant)",
        "ALTER TABLE jobs DROP COLUMN bytes",
        "ALTER TABLE quotas DROP COLUMN bytes",
        "UPDATE alembic_version SET version_num = '0006'",
    ):
        await database.write(lambda connection: connection.execute(text(statement)))  # noqa: B023
    await database.close()

    newer = Database(url)
    await newer.open()
    counted = await newer.look(lambda connection: connection.execute(select(jobs.c.bytes)).scalar_one())
    quota = await newer.look(lambda connection: quotas_of(connection, 0.0, "t")["t"])
    await newer.close()
    assert counted == len("naïve".encode()) + len("€".encode()) + 2
    assert (quota.spent, quota.bytes_kept) == (8, counted)


async def test_a_file_that_is_put_back_from_a_backup_is_the_one_that_is_used(tmp_path: Path) -> None:
    database, path = Database(f"sqlite:///{tmp_path}/jobs.sqlite"), tmp_path / "jobs.sqlite"
    await database.open()
    try:
        # given a backup, and a quota that was set after it
        assert await database.find(tenants_of) == []
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(tmp_path / "backup")) as backup:
            source.backup(backup)
        await database.write(lambda connection: connection.execute(insert(quotas).values(tenant="new", weight=1)))

        # when the backup takes the place of the file
        for one in tmp_path.glob("jobs.sqlite-*"):
            one.unlink()
        (tmp_path / "backup").rename(path)
        await database.write(lambda connection: connection.execute(insert(quotas).values(tenant="later", weight=1)))

        # then that is what is read and written
        assert await database.look(tenants_of) == await database.find(tenants_of) == ["later"]
        with closing(sqlite3.connect(path)) as there:
            assert there.execute("SELECT tenant FROM quotas").fetchall() == [("later",)]
    finally:
        await database.close()


@pytest.mark.parametrize("brief", [True, False])
async def test_writes_that_wait_are_committed_together_and_one_that_fails_is_undone_alone(
    tmp_path: Path, brief: bool
) -> None:
    database = Database(f"sqlite:///{tmp_path}/jobs.sqlite")
    await database.open()
    try:
        hold, began = threading.Event(), threading.Event()
        first = asyncio.create_task(database.write(lambda _: (began.set(), hold.wait(60))))
        await until(began.is_set)

        def put(tenant: str, fails: bool) -> Callable[[Connection], str]:
            def work(connection: Connection) -> str:
                connection.execute(insert(quotas).values(tenant=tenant, weight=1))
                if fails:
                    raise KeyError(tenant)
                return tenant

            return work

        others = [asyncio.create_task(database.write(put(f"t{n}", n == 1), brief=brief)) for n in range(3)]
        await settled()
        hold.set()
        await first

        assert await others[0] == "t0" and await others[2] == "t2"
        with pytest.raises(KeyError, match="t1"):
            await others[1]
        assert sorted(await database.look(tenants_of)) == sorted(await database.find(tenants_of)) == ["t0", "t2"]
    finally:
        await database.close()


async def test_a_write_waits_for_the_lock_of_another_program_and_looks_go_on(tmp_path: Path) -> None:
    database, path = Database(f"sqlite:///{tmp_path}/jobs.sqlite"), tmp_path / "jobs.sqlite"
    await database.open()
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            work = partial(Connection.execute, statement=insert(quotas).values(tenant="t", weight=1))
            write = asyncio.create_task(database.write(work, brief=True))
            await settled()
            assert await asyncio.wait_for(database.find(tenants_of), 10) == []
            assert not write.done()
            other.execute("ROLLBACK")
        await write
        assert await database.find(tenants_of) == ["t"]
    finally:
        await database.close()


async def test_a_database_that_many_read_is_not_away(tmp_path: Path) -> None:
    database, hold = Database(f"sqlite:///{tmp_path}/jobs.sqlite"), threading.Event()
    await database.open()
    try:
        slow = [asyncio.create_task(database.look(lambda connection: hold.wait(60))) for _ in range(8)]
        await settled()
        await asyncio.wait_for(database.ping(), 30)
        assert not any(one.done() for one in slow)
    finally:
        hold.set()
        await asyncio.gather(*slow)
        await database.close()


async def test_while_the_database_is_away_it_answers_503_and_is_not_ready(tmp_path: Path) -> None:
    async with managed(tmp_path, manager_window=1) as here:
        # given a job under way
        await here.submit(2, job_id="j")
        await here.released(1)

        # when the file is away, and an answer comes meanwhile
        (tmp_path / "jobs.sqlite").rename(tmp_path / "away")
        here.fleet.answer("j/0")
        refused = await here.get("/v1/jobs/j", 503)
        assert "is gone" in refused["detail"]
        await until(here.worker.trouble, timeout_s=10)

        # then nothing is lost once it is back
        (tmp_path / "away").rename(tmp_path / "jobs.sqlite")
        await until(lambda: here.worker.trouble() is None)
        await until(lambda: "j/0" in here.fleet.open or "j/1" in here.fleet.open)
        if "j/0" in here.fleet.open:
            here.fleet.answer("j/0")
        await until(lambda: "j/1" in here.fleet.open)
        here.fleet.answer("j/1")
        assert (await here.wait_for("j", state="done"))["ok"] == 2


@pytest.mark.parametrize("url", ["sqlite:///:memory:", "sqlite:///", "mysql://localhost/jobs"])
def test_a_database_in_no_file_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="write sqlite:///FILE or postgresql://user:password@host/name"):
        ManagerSettings(manager_db=SecretStr(url))
