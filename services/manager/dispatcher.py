"""Releases tasks to the fleet and stores their Results, until it is stopped.

A task is marked as released before it is published, and a Result is stored with the end of its task in one transaction.
So after a kill what was released is sent once more by the same id, which the fleet answers once.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection, func, select
from sqlalchemy.exc import StatementError

from ratchet.client import AsyncFleet
from ratchet.service import failpoint
from ratchet.service.errors import RatchetError, RegistryError, one_line
from ratchet.service.prices import Prices
from ratchet.service.telemetry import Log
from schemas.messages.base import DecodeError
from schemas.messages.result import Result
from schemas.messages.task import Task
from schemas.messages.training import TrainRequest
from services.manager import metrics
from services.manager.database import Database
from services.manager.job_store import OPEN
from services.manager.ledger import limits_of
from services.manager.order import Lanes
from services.manager.release import STORED_AT_ONCE, expire, release, released_tasks, store
from services.manager.settings import ManagerSettings
from services.manager.tables import IS_HELD, jobs, quotas
from services.manager.trainings import look_at_runs, open_runs, show_stages

log = Log("manager")

POLL_S = 0.5
"""Between two searches for tasks to release where nothing happens: another manager may have taken a job."""
PAUSE_S = 1.0
GATHER_S = 0.1
"""Between two transactions that store Results: each has all that came meanwhile, and costs a sync of the disk."""
EXPIRE_EVERY_S = 1.0
FOLLOW_EVERY_S = 1.0
"""Between two looks at the training runs of jobs."""
DAY_S = 86_400.0
LONGEST_SHARE = 0.9
"""The part of the longest deadline that the fleet takes which a task gets at most: its clock may be behind."""
BRIEF_S = 0.05
"""Seconds that a transaction may hold up the event loop for."""
T = TypeVar("T")


class Dispatcher:
    """`connect` makes a client of the fleet. `wake` is for who has changed a job."""

    def __init__(
        self, settings: ManagerSettings, prices: Prices | None, database: Database, connect: Callable[[], AsyncFleet]
    ) -> None:
        self._settings = settings
        self._prices = {} if prices is None else prices.agents
        self._database = database
        self._connect = connect
        self._lanes = Lanes(settings.manager_ageing_s, settings.manager_window)
        self._changed = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._trouble: str | None = None
        self._expired_at = -EXPIRE_EVERY_S
        self._took: dict[str, float] = {}
        """Seconds that the last transaction of each act took."""

    def start(self) -> None:
        self._running = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Release nothing any more. The next manager gets the Results of what the fleet has."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def wake(self) -> None:
        self._changed.set()

    def trouble(self) -> str | None:
        if self._running is not None and self._running.done():
            return "the manager releases nothing any more: see the log, and restart it"
        return self._trouble

    async def _run(self) -> None:
        while True:
            try:
                if await self._database.leads():
                    try:
                        await self._dispatch()
                    finally:
                        metrics.quota_used.clear()
                self._trouble = None
            except RatchetError as error:
                if self._trouble != str(error):
                    log.error("held-up", f"{error}; what waits is kept, and it is tried again")
                self._trouble = str(error)
            await asyncio.sleep(PAUSE_S)

    async def _dispatch(self) -> None:
        """Return when another manager leads. Raises RatchetError where the broker or the database is away."""
        async with self._connect() as fleet:
            acts = (self._release_tasks(fleet), self._store_results(fleet), self._follow_runs())
            all_of_them = [asyncio.create_task(act) for act in acts]
            try:
                done, _ = await asyncio.wait(all_of_them, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    one.result()
            finally:
                for one in all_of_them:
                    one.cancel()
                await asyncio.gather(*all_of_them, return_exceptions=True)

    async def _release_tasks(self, fleet: AsyncFleet) -> None:
        if began := await self._database.write(partial(released_tasks, now=time.time())):
            log.info("taken-up", f"{len(began)} tasks were released before: they are sent once more")
            await self._submit(fleet, began)
        while await self._database.leads():
            self._trouble = None
            self._changed.clear()
            expires = time.monotonic() - self._expired_at >= EXPIRE_EVERY_S
            new = await self._write("release", partial(self._release, expires=expires), brief=not expires, leads=True)
            failpoint.reach("tasks-released")
            if new:
                await self._submit(fleet, new)
            else:
                await self._wait_for_change()

    async def _submit(self, fleet: AsyncFleet, released: Iterable[Task | TrainRequest]) -> None:
        until = datetime.now(UTC) + timedelta(seconds=LONGEST_SHARE * self._settings.longest_deadline_s)
        tasks: list[Task] = []
        runs: list[TrainRequest] = []
        for one in released:
            if isinstance(one, TrainRequest):
                runs.append(one)
            else:
                tasks.append(one.model_copy(update={"deadline": min(one.deadline or until, until)}))
        await fleet.submit_all(tasks)
        for run in runs:
            await fleet.train(run)

    def _release(self, connection: Connection, *, expires: bool) -> list[Task | TrainRequest]:
        now = time.time()
        if expires:
            if unanswered := expire(connection, now, self._settings.manager_keep_days * DAY_S):
                log.error("unanswered", f"the fleet gave no answer to {unanswered} tasks within their deadline")
            show_open_jobs(connection)
            show_quotas(connection, now)
            self._expired_at = time.monotonic()
        return release(connection, self._lanes, self._prices, now)

    async def _wait_for_change(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_S):
                await self._changed.wait()

    async def _store_results(self, fleet: AsyncFleet) -> None:
        while True:
            if results := await fleet.listen(POLL_S):
                await self._store(results)
                await asyncio.sleep(GATHER_S)

    async def _store(self, results: list[Result]) -> None:
        for first in range(0, len(results), STORED_AT_ONCE):
            some = results[first : first + STORED_AT_ONCE]
            try:
                ended = await self._write("store", partial(store, results=some, now=time.time()))
            except StatementError as error:
                log.error("unstorable", f"results can't be stored, and are stored one by one: {error}")
                ended = Counter()
                for one in some:
                    ended += await self._store_alone(one)
            failpoint.reach("results-stored")
            for state, count in ended.items():
                metrics.ended.labels(state).inc(count)
        self.wake()

    async def _store_alone(self, result: Result) -> Counter[str]:
        """Store a Result; where the database refuses what it has, the task ends as failed."""
        try:
            return await self._database.write(partial(store, results=[result], now=time.time()))
        except StatementError as error:
            why = f"its result can't be stored: {one_line(str(error.orig), 200)}"
            failed = Result(task_id=result.task_id, status="failed", reason=why)
            return await self._database.write(partial(store, results=[failed], now=time.time()))

    async def _write(self, act: str, work: Callable[[Connection], T], *, brief: bool = True, leads: bool = False) -> T:
        """Make a transaction, in the event loop where it is `brief` and the last one of this act was."""

        def work_and_measure(connection: Connection) -> T:
            began = time.perf_counter()
            try:
                return work(connection)
            finally:
                self._took[act] = time.perf_counter() - began

        brief = brief and self._took.get(act, 0.0) < BRIEF_S
        return await self._database.write(work_and_measure, brief=brief, leads=leads)

    async def _follow_runs(self) -> None:
        """Follow training runs by their records. Where these can't be read, runs and their jobs wait."""
        shown: dict[str, str] = {}
        while True:
            if runs := await self._database.look(partial(open_runs, now=time.time())):
                try:
                    look = await asyncio.to_thread(look_at_runs, self._settings.adapters_dir, runs)
                except (OSError, DecodeError, RegistryError) as error:
                    log.warning("runs-unreadable", f"the training runs of jobs can't be followed: {error}")
                else:
                    if look.results:
                        await self._store(look.results)
                    if look.stages != shown:
                        await self._database.write(partial(show_stages, stages=look.stages))
                        shown = look.stages
            await asyncio.sleep(FOLLOW_EVERY_S)


def show_quotas(connection: Connection, now: float) -> None:
    found = limits_of(connection, now, connection.execute(select(quotas.c.tenant)).scalars())
    metrics.quota_used.clear()
    for tenant, quota in found.items():
        for limit, share in quota.used.items():
            metrics.quota_used.labels(tenant, limit).set(share)


def show_open_jobs(connection: Connection) -> None:
    counts = select(jobs.c.state, func.count()).where(jobs.c.state.in_(OPEN)).group_by(jobs.c.state)
    found: dict[str, int] = dict(connection.execute(counts).all())
    for state in OPEN:
        metrics.jobs.labels(state).set(found.get(state, 0))
    waiting, released = connection.execute(
        select(func.sum(jobs.c.waiting), func.sum(jobs.c.released)).where(IS_HELD)
    ).one()
    metrics.tasks.labels("waiting").set(waiting or 0)
    metrics.tasks.labels("released").set(released or 0)
