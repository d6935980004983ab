"""Managers on one PostgreSQL: one of them releases, all answer, and it may go away."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

from ratchet.http.access.roles import LOCAL
from ratchet.http.problem import Problem
from schemas.api.jobs import Job, JobSubmission, TenantQuota
from services.manager import job_store
from services.manager.database import Database
from services.manager.limits import set_quota
from services.manager.order import Lanes
from services.manager.release import expire, release
from tests.services.manager.managed import ScriptedFleet, managed
from tests.services.manager.postgres import FOLDERS, Postgres, postgres
from tests.services.manager.test_database import check_old_jobs_count_their_bytes
from tests.waiting import settled, until

pytestmark = pytest.mark.skipif(not FOLDERS, reason="needs Debian's package postgresql")


@pytest.fixture
def server() -> Iterator[Postgres]:
    with postgres() as found:
        yield found


async def test_another_manager_takes_over_from_the_one_that_releases(tmp_path: Path, server: Postgres) -> None:
    first, second = ScriptedFleet(), ScriptedFleet()
    async with managed(tmp_path / "a", first, manager_db=server.url) as one:
        # given a manager that releases, and another one
        await one.submit(2, job_id="j")
        await one.released(2)
        ending = managed(tmp_path / "b", second, manager_db=server.url)
        other = await ending.__aenter__()
        await settled(0.5)
        assert not second.open
        assert (await other.get("/v1/jobs/j"))["released"] == 2

    # when the first is gone
    # then the other has its tasks
    for task_id in await other.released(2):
        second.answer(task_id)
    assert (await other.wait_for("j", state="done"))["ok"] == 2
    await ending.__aexit__(None, None, None)


async def test_what_is_released_as_another_manager_takes_over_is_not_lost(tmp_path: Path, server: Postgres) -> None:
    first, second = ScriptedFleet(), ScriptedFleet()
    async with (
        managed(tmp_path / "a", first, manager_db=server.url) as one,
        managed(tmp_path / "b", second, manager_db=server.url) as other,
        two_databases(server) as (database, _),
    ):
        # given a manager that leads, in a release that is held up
        with database.beside() as connection:
            await one.submit(1, job_id="j", more=True)
            connection.execute(text("SELECT * FROM tasks FOR UPDATE"))
            await one.post("/v1/jobs/j/tasks", json={"first": 1, "tasks": ["x"]})
            with database.beside() as looks:
                waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
                await until(lambda: looks.execute(waiting).scalar())

                # when its session with the lock ends, so that the other leads
                leads = text("SELECT pid FROM pg_locks WHERE locktype = 'advisory'")
                (leader,) = looks.execute(leads).scalars()
                looks.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": leader})
                await until(lambda: set(looks.execute(leads).scalars()) - {leader})
                await settled(0.5)

        # then the other asks for the tasks
        for task_id in await other.released(2):
            second.answer(task_id)
        assert (await other.wait_for("j", state="done"))["ok"] == 2


async def test_a_database_that_is_away_loses_nothing(tmp_path: Path, server: Postgres) -> None:
    async with managed(tmp_path, manager_db=server.url, manager_window=1) as here:
        # given a job under way
        await here.submit(3, job_id="j")
        await here.released(1)

        # when the database crashes
        server.stop()
        refused = await here.get("/v1/jobs/j", 503)
        assert "does not answer" in refused["detail"]
        await until(here.worker.trouble, timeout_s=10)

        # then the job goes on once it is back
        server.start()
        await until(lambda: here.worker.trouble() is None)
        for n in range(3):
            await until(lambda: f"j/{n}" in here.fleet.open)  # noqa: B023
            here.fleet.answer(f"j/{n}")
        assert (await here.wait_for("j", state="done"))["ok"] == 3


async def test_jobs_of_before_the_quota_of_bytes_count_their_bytes(server: Postgres) -> None:
    await check_old_jobs_count_their_bytes(server.url)


@asynccontextmanager
async def two_databases(server: Postgres) -> AsyncIterator[tuple[Database, Database]]:
    one, other = Database(server.url), Database(server.url)
    for database in (one, other):
        await database.open()
    yield one, other
    for database in (one, other):
        await database.close()


def new_job(connection: Connection, job_id: str) -> Job:
    asked = JobSubmission.model_validate({"job_id": job_id, "tasks": ["x"] * 10})
    return job_store.submit(connection, asked, "small", "t", LOCAL, None, time.time(), time.time() + 999)[0]


async def both(one: Database, first: Callable[[Connection], Any], other: Database, then: Callable[..., Any]) -> Any:
    """Return what `then` brings, which begins while the transaction of `first` is open."""
    has_begun, may_end = threading.Event(), threading.Event()

    def begin_and_wait(connection: Connection) -> None:
        first(connection)
        has_begun.set()
        may_end.wait(5)

    beginning = asyncio.create_task(one.write(begin_and_wait))
    await asyncio.to_thread(has_begun.wait)
    following = asyncio.create_task(other.write(then))
    await settled(0.3)
    may_end.set()
    await beginning
    return await following


async def test_a_job_that_another_manager_pauses_is_not_released(server: Postgres) -> None:
    async with two_databases(server) as (one, other):
        await one.write(partial(new_job, job_id="p"))

        released = await both(
            one,
            lambda connection: job_store.pause(connection, "p", time.time()),
            other,
            lambda connection: release(connection, Lanes(30.0, 256), {}, time.time()),
        )

        job = await one.look(lambda connection: job_store.get(connection, "p", LOCAL, time.time()))
        assert (released, job.state, job.waiting) == ([], "paused", 10)


async def test_a_job_that_another_manager_runs_again_is_not_forgotten(server: Postgres) -> None:
    async with two_databases(server) as (one, other):
        # given a job that ended longer ago than jobs are kept
        await one.write(partial(new_job, job_id="r"))
        await one.write(lambda connection: job_store.cancel(connection, "r", time.time() - 99))

        # when it is run again as another manager forgets it
        await both(
            one,
            lambda connection: job_store.rerun(connection, "r", time.time(), time.time() + 999),
            other,
            lambda connection: expire(connection, time.time(), 9.0),
        )

        job = await one.look(lambda connection: job_store.get(connection, "r", LOCAL, time.time()))
        assert (job.state, job.waiting) == ("running", 10)


async def test_two_managers_hold_one_quota(server: Postgres) -> None:
    async with two_databases(server) as (one, other):
        await one.write(lambda connection: set_quota(connection, "t", TenantQuota(open_tasks=10), time.time()))

        with pytest.raises(Problem, match="open tasks"):
            await both(one, partial(new_job, job_id="a"), other, partial(new_job, job_id="b"))


async def test_the_same_job_at_two_managers_at_once_is_one(tmp_path: Path, server: Postgres) -> None:
    async with (
        managed(tmp_path / "a", manager_db=server.url) as one,
        managed(tmp_path / "b", manager_db=server.url) as other,
    ):
        for number in range(10):
            jobs = await asyncio.gather(*(here.submit(50, job_id=f"j{number}") for here in (one, other) * 3))
            assert {job["tasks"] for job in jobs} == {50}


async def test_a_reason_that_the_database_can_not_take_ends_its_task_alone(tmp_path: Path, server: Postgres) -> None:
    async with managed(tmp_path, manager_db=server.url) as here:
        await here.submit(3, job_id="j")
        await here.released(3)
        here.fleet.answer("j/0", reason="the judge: a\0b", score=0.5)
        here.fleet.answer("j/1", usage={"prompt_tokens": 2**63, "sampled_tokens": 1})
        here.fleet.answer("j/2")

        job = await here.wait_for("j", state="done")
        assert (job["ok"], job["failed"]) == (2, 1)
        assert "can't be stored" in next(iter((await here.get("/v1/jobs/j"))["failures"]))


async def test_the_server_ends_the_session_of_a_manager_that_is_gone(server: Postgres) -> None:
    async with two_databases(server) as (one, _):
        names = ("idle", "interval", "count")
        found = await one.look(
            lambda connection: [connection.execute(text(f"SHOW tcp_keepalives_{name}")).scalar() for name in names]
        )
        assert found == ["10", "5", "3"]
