"""A clock of the orchestrator: the logs stay within their bound, and the index forgets what went.

What may go is decided in `ratchet/logs/retention/`; the work on files is done in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from time import monotonic
from typing import Any

from prometheus_client import Counter, Gauge

from ratchet.logs.leadership import UNFENCED, Fence
from ratchet.logs.retention.contents import newest_time, trim_to_tasks
from ratchet.logs.retention.needs import Needs, needs
from ratchet.logs.retention.plan import AgeClock, Bound, Instant
from ratchet.logs.retention.pruner import Pruned, Pruner, sizes
from ratchet.logs.trajectories import FOLDER as TRAJECTORIES
from ratchet.service.telemetry import Log
from services.orchestrator.ledger.keyed_log import KeyedLog
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.settings import OrchestratorSettings

log = Log("retention")

log_bytes = Gauge("ratchet_log_bytes", "Bytes of a log on disk, sealed segments included.", ["log"])
bound_bytes = Gauge("ratchet_log_bound_bytes", "Bytes both logs may have on disk; 0: no bound.")
is_held = Gauge("ratchet_log_removal_held", "1 while the logs are over their bound and something needs all of them.")
segments_removed = Counter("ratchet_log_segments_removed_total", "Segments removed from the logs.", ["log"])


@dataclass(eq=False)
class LogRetention:
    """`about_tasks`: logs that forget what is about tasks that were removed.

    `first_pending`: the number of the first task that is closed and whose user is not told yet. After a kill its Reward
    comes again, and its Result is looked up in the logs.
    """

    ledger: Ledger
    about_tasks: Sequence[KeyedLog[Any]]
    settings: OrchestratorSettings
    _: KW_ONLY
    clock: Callable[[], datetime]
    seconds: Callable[[], float] = monotonic
    fence: Fence = UNFENCED
    first_pending: Callable[[], int | None] = lambda: None

    def __post_init__(self) -> None:
        self.bound = Bound.of(self.settings.log_keep_gb, self.settings.log_keep_days)
        self._folder = self.ledger.folder
        self._age_clock: AgeClock | None = None
        self._pruner = Pruner(self._folder, self.bound, self.fence)
        self._reported: str | None = None
        bound_bytes.set(self.bound.keep_bytes)

    async def turn(self) -> None:
        """Raises DiskFull, JournalError, RegistryError; the next turn tries again."""
        if self.bound:
            await self.ledger.seal_in_step()
            needed = await asyncio.to_thread(self._needs)
            needed = needed.also(self.first_pending())  # asked last: so it has what was closed meanwhile
            self._report(await asyncio.to_thread(self._prune, needed))
        await self.ledger.forget_removed()
        await self.ledger.shorten_promises()
        for one in self.about_tasks:
            await one.forget(await asyncio.to_thread(trim_to_tasks, self._folder, one.LOG, self.fence))
        for name, size in (await asyncio.to_thread(sizes, self._folder)).items():
            log_bytes.labels(name).set(size)
            segments_removed.labels(name)
        log_bytes.labels(TRAJECTORIES).set(await asyncio.to_thread(self._pruner.trajectory_bytes))

    def _needs(self) -> Needs:
        settings = self.settings
        return needs(settings.index_folder, settings.adapters_dir, settings.fleet_number)

    def _prune(self, needed: Needs) -> Pruned:
        now = Instant(self.clock(), self.seconds())
        self._age_clock = (self._age_clock or AgeClock.start(newest_time(self._folder), now)).at(now)
        return self._pruner.prune(needed, self._age_clock.present)

    def _report(self, pruned: Pruned) -> None:
        """Each reason for which segments stay is said once."""
        for part in pruned.removed:
            segments_removed.labels(part.segment.name).inc()
        held = pruned.held
        is_held.set(held is not None)
        why = f"{held.part.segment.path.name} stays: {held.why}" if held else None
        if why is not None and why != self._reported:
            log.warning("held", f"the logs are over their bound, but {why}")
        self._reported = why
