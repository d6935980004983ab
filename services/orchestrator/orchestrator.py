"""The orchestrator as a service: leader or standby, how its parts begin and end, and what is done again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from time import monotonic

from fastapi import APIRouter

from ratchet.adapters.retention import remove_leftovers
from ratchet.bus.protocol import Bus
from ratchet.bus.topology import ROLLOUTS_TOPIC
from ratchet.files.append_file import AppendFile
from ratchet.logs.follower import remove_follower_note
from ratchet.logs.leadership import RENEWALS, Arbiter, Leadership
from ratchet.runtime.runner import Subscription
from ratchet.service.errors import StorageUnavailable
from ratchet.service.telemetry import Log
from schemas.messages.work import Work
from services.orchestrator import metrics
from services.orchestrator.api.routers import routers_of
from services.orchestrator.clocks import Clocks, now
from services.orchestrator.observation.overview import LOOK_EVERY_S
from services.orchestrator.parts import Parts
from services.orchestrator.settings import OrchestratorSettings

log = Log("orchestrator")

STANDBY_POLL_S = 0.2
SWEEP_EVERY_S = 1.0
POOL_EVERY_S = 0.25
GAUGES_EVERY_S = 5.0
STORAGE_TIMEOUT_S = 5.0
SWEEP_AT_ONCE = 500
DEADLINES = "deadlines"
"""The note in the index that carries the clock of deadlines over a restart."""


def _arbiter(settings: OrchestratorSettings) -> Arbiter | None:
    if not settings.lease:
        return None
    from ratchet.logs.kubernetes_lease import KubernetesLease

    return KubernetesLease.of_pod(settings.lease, lease_s=settings.lease_s)


class Orchestrator:
    """An orchestrator works while it leads the logs folder, and waits otherwise (ratchet/logs/leadership.py)."""

    name = "orchestrator"

    def __init__(
        self,
        settings: OrchestratorSettings,
        bus: Bus,
        *,
        clock: Callable[[], datetime] = now,
        seconds: Callable[[], float] = monotonic,
        file_type: type[AppendFile] = AppendFile,
        on_lost: Callable[[str], None] = lambda _: None,
        pace: float = 1.0,
    ) -> None:
        """`clock` may jump, `seconds` never does. `file_type`: of the logs of tasks. `pace`: as of Clocks.

        `on_lost` is told once another leads: it ends the process, in whatever thread that was found out.
        """
        self._settings = settings
        self._bus = bus
        self._clock = clock
        self._leadership = Leadership(
            settings.logs_dir, lease_s=settings.lease_s, seconds=seconds, on_lost=on_lost, arbiter=_arbiter(settings)
        )
        self.parts = Parts(
            settings, bus, self._leadership, self.trouble, clock=clock, seconds=seconds, file_type=file_type, pace=pace
        )
        self.ledger = self.parts.ledger
        self._standby = False
        self._clocks = Clocks(self._leadership.check, pace)
        self._lease_clock = Clocks()
        self._renewing = ThreadPoolExecutor(1, "lease")

    def routers(self) -> Sequence[APIRouter]:
        return routers_of(self.parts)

    def subscriptions(self) -> Sequence[Subscription]:
        return self.parts.subscriptions()

    def trouble(self) -> str | None:
        if self._standby:
            return f"standby: the orchestrator of {self._leadership.holder()} holds {self._leadership.path}"
        return self._lease_clock.trouble() or self._clocks.trouble()

    async def start(self) -> None:
        """Wait to lead, then repair, catch up, and take up the experiments that were running."""
        parts = self.parts
        await self._become_leader()
        await self.ledger.open()
        for task_id in self.ledger.unanswered:
            parts.settler.add_pending_result(task_id)
        newest_line = await asyncio.to_thread(self.ledger.newest_line)
        parts.deadlines.start(self.ledger.index.note(DEADLINES), newest_line)
        for keyed_log in parts.keyed_logs:
            await keyed_log.open()
        parts.approvals.start()
        parts.calibrations.start()
        await asyncio.to_thread(self._take_up_registry)
        for promoter in parts.promoters.values():
            await promoter.start()
        if self._settings.fleet is not None:
            await parts.pool.start()
        await parts.audits.start()
        await parts.cascades.start()
        for name, agent in parts.agents.items():
            agent.anchors.start()
            agent.samples.take_up(self.ledger.index.note(f"samples/{name}"))
        self._count_open_works()
        await parts.watcher.start()
        if self._settings.has_runner:
            await self._bus.listen(ROLLOUTS_TOPIC, parts.rollouts.receive_broadcast)
        metrics.is_active.set(1)
        parts.objectives.show_budgets()
        self._start_clocks()

    def _start_clocks(self) -> None:
        start, parts, settings = self._clocks.start, self.parts, self._settings
        start("index-commit", self._commit, 0.5)
        start("deadline-sweep", self._sweep, SWEEP_EVERY_S)
        start("telling", parts.settler.send_pending_results, 0.25)
        start("reward-news", parts.news.flush, 0.25)
        start("approvals", parts.approvals.turn, 0.5)
        start("audits", parts.audits.turn, 0.25)
        if parts.cascades.agents:
            start("cascades", parts.cascades.turn, 0.1)
        start("queue-gauges", parts.queue_gauges.refresh, GAUGES_EVERY_S)
        start("quality-gauges", parts.quality.refresh, GAUGES_EVERY_S)
        start("disk-gauges", parts.disk_gauges.refresh, GAUGES_EVERY_S)
        start("storage", self._check_storage, 2.0)
        start("log-retention", self._retain, 30.0)
        start("watcher", parts.watcher.turn, 0.5)
        start("overview", parts.overview.look, LOOK_EVERY_S)
        for name, promoter in parts.promoters.items():
            start(f"adapters-{name}", promoter.turn, 0.25)
        if settings.fleet is not None:
            start("evidence-pool", parts.pool.turn, POOL_EVERY_S)
        if settings.pool is not None:  # not before: the open tasks are counted now
            start("adapters-in-use", parts.pool.note_adapters_in_use, POOL_EVERY_S)
        for name, agent in parts.agents.items() if settings.anchor_every_s and not settings.fleet else ():
            start(f"anchors-{name}", agent.anchors.check, settings.anchor_every_s, first=False)

    async def stop(self) -> None:
        parts = self.parts
        parts.hub.close()
        await self._clocks.stop()
        if self._clocks.running:
            for promoter in parts.promoters.values():
                await promoter.stop()
            await parts.pool.close()
            for keyed_log in parts.keyed_logs:
                await keyed_log.close()
            await self.ledger.close()
        parts.threads.close()
        await self._lease_clock.stop()
        self._renewing.shutdown()
        self._leadership.release()

    # --- leader or standby -----------------------------------------------------------------------------------------

    async def _become_leader(self) -> None:
        while not self._leadership.try_lead():
            if not self._standby:
                lock = str(self._leadership.path)
                log.info("standby", "another orchestrator works here; waiting to take over", lock=lock)
            self._standby = True
            await asyncio.sleep(STANDBY_POLL_S)
        self._lease_clock.start("lease", self._renew, self._settings.lease_s / RENEWALS)
        epoch = self._leadership.epoch
        if self._leadership.took_from_living:
            log.warning("took-over", "the other orchestrator hangs; it ends once it goes on", epoch=epoch)
        elif self._standby:
            log.info("took-over", "the other orchestrator is gone; this one takes over", epoch=epoch)
        self._standby = False

    async def _renew(self) -> None:
        """Out of this loop and onto the disk: a leader whose loop or disk stands still gives no sign of life."""
        await asyncio.get_running_loop().run_in_executor(self._renewing, self._leadership.renew)

    def _take_up_registry(self) -> None:
        if self._settings.pool is not None:
            return  # the fleet that decides keeps it in order
        remove_follower_note(self._settings.logs_dir)
        self.parts.store.open()
        remove_leftovers(self.parts.store)

    def _count_open_works(self) -> None:
        for body in self.ledger.index.open_works():
            work = Work.decode(body)
            if promoter := self.parts.promoters.get(work.agent_id):
                promoter.arms.open_work(work)

    # --- its clocks ------------------------------------------------------------------------------------------------

    async def _commit(self) -> None:
        write_note = self.ledger.index.write_note
        write_note(DEADLINES, self.parts.deadlines.note())
        for name, agent in self.parts.agents.items():
            if self._settings.adaptive.adapts:
                write_note(f"samples/{name}", agent.samples.note())
            metrics.samples_now.labels(name).set(agent.samples.count())
        self.parts.cascades.write_notes()
        self.ledger.commit()

    async def _check_storage(self) -> None:
        try:
            async with asyncio.timeout(STORAGE_TIMEOUT_S):
                await self.ledger.check_storage()
                for keyed_log in self.parts.keyed_logs:
                    await keyed_log.check_storage()
        except TimeoutError:
            folder = self._settings.logs_dir
            raise StorageUnavailable(f"{folder} has not answered for {STORAGE_TIMEOUT_S:.0f} s: see dmesg") from None

    async def _retain(self) -> None:
        """Remove no lines while Rewards wait that may have come before: their users are told from these lines."""
        while not self.parts.backlog.cleared:  # noqa: ASYNC110  # the sweep asks
            await asyncio.sleep(0.25)
        await self.parts.retention.turn()

    async def _sweep(self) -> None:
        """Settle what was answered in time first, however long it waited."""
        settler = self.parts.settler
        if await self.parts.backlog.is_cleared():
            limit = SWEEP_AT_ONCE + settler.unclosable
            await settler.expire_overdue(self.parts.deadlines.overdue(self.ledger.index, limit))
        metrics.open_tasks.set(self.ledger.index.count()[1])
        metrics.oldest_open_task.set(self.ledger.oldest_open_s(self._clock()))
