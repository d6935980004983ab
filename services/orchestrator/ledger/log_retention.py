"""A clock of the orchestrator: the logs stay within their bound, and the index forgets what went.

What may go is decided in `ratchet/logs/retention/`; the work on files is done in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, InitVar, dataclass
from datetime import datetime
from pathlib import Path
from time import monotonic

from prometheus_client import Counter, Gauge

from ratchet.logs.leadership import UNFENCED, Fence
from ratchet.logs.retention.contents import newest_time, trim_to_tasks
from ratchet.logs.retention.needs import Needs, needs
from ratchet.logs.retention.plan import AgeClock, Bound, Held, Instant
from ratchet.logs.retention.pruner import Pruned, Pruner, sizes
from ratchet.logs.trajectories import FOLDER as TRAJECTORIES
from ratchet.service.telemetry import Log
from services.orchestrator.ledger.ledger import Ledger

log = Log("retention")

log_bytes = Gauge("ratchet_log_bytes", "Bytes of a log on disk, sealed segments included.", ["log"])
bound_bytes = Gauge("ratchet_log_bound_bytes", "Bytes both logs may have on disk; 0: no bound.")
is_held = Gauge("ratchet_log_removal_held", "1 while the logs are over their bound and something needs all of them.")
segments_removed = Counter("ratchet_log_segments_removed_total", "Segments removed from the logs.", ["log"])


@dataclass(eq=False)
class LogRetention:
    """`forget`: of each log about tasks, what forgets its lines before a position. `follower`: see `needs`.

    `first_pending`: the number of the first task that is closed and whose user is not told yet. A kill would have its
    Reward come again, which finds the Result in the logs.
    """

    ledger: Ledger
    forget: Mapping[str, Callable[[int], Awaitable[None]]]
    bound: Bound
    _: KW_ONLY
    first_pending: Callable[[], int | None] = lambda: None
    logs_dir: Path
    adapters_dir: Path
    clock: Callable[[], datetime]
    seconds: Callable[[], float] = monotonic
    index_dir: InitVar[Path | None] = None
    fence: Fence = UNFENCED
    follower: int = 0

    def __post_init__(self, index_dir: Path | None) -> None:
        self._index_dir = index_dir or self.logs_dir
        self._age_clock: AgeClock | None = None
        self._pruner = Pruner(self.logs_dir, self.bound, self.fence)
        self._reported: str | None = None
        bound_bytes.set(self.bound.keep_bytes)

    async def turn(self) -> None:
        """Raises DiskFull, JournalError, RegistryError; the next turn tries again."""
        if self.bound:
            await self.ledger.seal_in_step()
            needed = await asyncio.to_thread(needs, self._index_dir, self.adapters_dir, self.follower)
            needed = needed.also(self.first_pending())  # asked last: it has what was closed meanwhile
            self._report(await asyncio.to_thread(self._prune, needed))
        await self.ledger.forget_removed()
        await self.ledger.shorten_promises()
        for name, forget in self.forget.items():
            await forget(await asyncio.to_thread(trim_to_tasks, self.logs_dir, name, self.fence))
        for name, size in (await asyncio.to_thread(sizes, self.logs_dir)).items():
            log_bytes.labels(name).set(size)
            segments_removed.labels(name)
        log_bytes.labels(TRAJECTORIES).set(await asyncio.to_thread(self._pruner.trajectory_bytes))

    def _prune(self, needed: Needs) -> Pruned:
        now = Instant(self.clock(), self.seconds())
        self._age_clock = (self._age_clock or AgeClock.start(newest_time(self.logs_dir), now)).at(now)
        return self._pruner.prune(needed, self._age_clock.present)

    def _report(self, pruned: Pruned) -> None:
        for part in pruned.removed:
            segments_removed.labels(part.segment.name).inc()
        is_held.set(pruned.held is not None)
        self._warn_once(pruned.held)

    def _warn_once(self, held: Held | None) -> None:
        """Each reason once."""
        why = f"{held.part.segment.path.name} stays: {held.why}" if held else None
        if why is not None and why != self._reported:
            log.warning("held", f"the logs are over their bound, but {why}")
        self._reported = why
