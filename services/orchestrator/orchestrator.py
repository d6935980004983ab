"""The orchestrator as a service: leader or standby, what it consumes, and its two clocks (deadlines, index commits)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from services.bus import Bus
from services.folder_lock import FolderLock
from services.orchestrator import metrics
from services.orchestrator.admission import AdmissionPolicy
from services.orchestrator.answers import Answers
from services.orchestrator.completion import Completion
from services.orchestrator.intake import Intake
from services.orchestrator.ledger import Ledger
from services.orchestrator.settings import OrchestratorSettings
from services.orchestrator.settler import Settler
from services.service import Subscription
from services.telemetry import Log
from services.topology import DRAFT_RESPONSES, KEPT_RESPONSES, REWARDS, TASKS

log = Log("orchestrator")

STANDBY_POLL_S = 0.2
COMMIT_EVERY_S = 0.5
SWEEP_EVERY_S = 1.0
SWEEP_AT_ONCE = 500


def now() -> datetime:
    return datetime.now(UTC)


class Orchestrator:
    """Whoever holds the lock on the logs folder works; any other instance waits for it."""

    name = "orchestrator"

    def __init__(self, settings: OrchestratorSettings, bus: Bus) -> None:
        self._settings = settings
        self._lock = FolderLock(settings.logs_dir)
        self._ledger = Ledger(settings.logs_dir, segment_bytes=settings.segment_bytes)
        answers = Answers(bus, self._ledger)
        policy = AdmissionPolicy(settings.agents, settings.sampling, timedelta(seconds=settings.task_deadline_s))
        self._intake = Intake(
            bus, self._ledger, answers, policy, max_message_bytes=settings.max_message_bytes, clock=now
        )
        self._settler = Settler(self._ledger, answers, clock=now)
        self._completion = Completion(bus, self._ledger)
        self._standby = False
        self._troubles: dict[str, str] = {}
        self._clocks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Wait for the lock, then repair and catch up."""
        await self._become_leader()
        for task_id in await self._ledger.open():
            self._settler.owe(task_id)
        metrics.is_active.set(1)
        self._clocks = [asyncio.create_task(self._commit_often()), asyncio.create_task(self._sweep_often())]

    def subscriptions(self) -> Sequence[Subscription]:
        prefetch = self._settings.orchestrator_prefetch
        kept = [Subscription(KEPT_RESPONSES, self._completion.keep, prefetch)] if self._settings.external_scorer else []
        return [
            Subscription(REWARDS, self._settler.handle, prefetch),
            Subscription(TASKS, self._intake.handle, prefetch),
            Subscription(DRAFT_RESPONSES, self._completion.complete, prefetch),
            *kept,
        ]

    def trouble(self) -> str | None:
        if self._standby:
            return f"standby: the orchestrator of {self._lock.holder()} holds {self._lock.path}"
        return next(iter(self._troubles.values()), None)

    async def stop(self) -> None:
        for clock in self._clocks:
            clock.cancel()
        if self._clocks:
            await asyncio.gather(*self._clocks, return_exceptions=True)
            await self._ledger.close()
        self._lock.release()

    async def _become_leader(self) -> None:
        while not self._lock.try_acquire():
            if not self._standby:
                log.info("standby", "another orchestrator works here; waiting to take over", lock=str(self._lock.path))
            self._standby = True
            await asyncio.sleep(STANDBY_POLL_S)
        if self._standby:
            log.info("took-over", "the other orchestrator is gone; this one takes over")
        self._standby = False

    async def _commit_often(self) -> None:
        while True:
            with self._surviving("index-commit"):
                self._ledger.commit()
            await asyncio.sleep(COMMIT_EVERY_S)

    async def _sweep_often(self) -> None:
        while True:
            with self._surviving("deadline-sweep"):
                await self._settler.tell_the_untold()
                overdue = self._ledger.index.overdue(now().timestamp(), SWEEP_AT_ONCE)
                await asyncio.gather(*(self._settler.expire(entry) for entry in overdue))
                metrics.open_tasks.set(self._ledger.index.count()[1])
            await asyncio.sleep(SWEEP_EVERY_S)

    @contextmanager
    def _surviving(self, clock: str) -> Iterator[None]:
        """A clock goes on after any failure; until the next success the service is not ready, and says why."""
        try:
            yield
        except Exception as error:
            self._troubles[clock] = f"{clock} fails: {error}"
            log.error(clock, f"{clock} fails and is tried again: {error}", exc_info=error)
        else:
            self._troubles.pop(clock, None)
