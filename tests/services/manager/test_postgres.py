"""Managers on one PostgreSQL: one of them releases, all answer, and it may go away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

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
