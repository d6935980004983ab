"""A clock of the orchestrator: the logs stay within their bound, and the index forgets what went.

What may go is decided in `ratchet/logs/retention/`; the work on files is done in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from pathlib import Path
from time import monotonic

from prometheus_client import Counter, Gauge

from ratchet.logs.leadership import UNFENCED, Fence
from ratchet.logs.retention.contents import newest_time, trim_to_tasks
from ratchet.logs.retention.needs import needs
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


class LogRetention:
    def __init__(
        self,
        ledger: Ledger,
        forget: Mapping[str, Callable[[int], Awaitable[None]]],
        bound: Bound,
        *,
        logs_dir: Path,
        adapters_dir: Path,
        clock: Callable[[], datetime],
        seconds: Callable[[], float] = monotonic,
        index_dir: Path | None = None,
        fence: Fence = UNFENCED,
        follower: int = 0,
    ) -> None:
        """`forget`: of each log about tasks, what forgets its lines before a position. `follower`: see `needs`."""
        self._follower = follower
        self._ledger = ledger
        self._forget = forget
        self._bound = bound
        self._logs_dir = logs_dir
        self._index_dir = index_dir or logs_dir
        self._fence = fence
        self._adapters_dir = adapters_dir
        self._clock = clock
        self._seconds = seconds
        self._age_clock: AgeClock | None = None
        self._pruner = Pruner(logs_dir, bound, fence)
        self._reported: str | None = None
        bound_bytes.set(bound.keep_bytes)

    async def turn(self) -> None:
        """Raises DiskFull, JournalError, RegistryError; the next turn tries again."""
        if self._bound:
            await self._ledger.seal_in_step()
            self._report(await asyncio.to_thread(self._prune))
        await self._ledger.forget_removed()
        await self._ledger.shorten_promises()
        for name, forget in self._forget.items():
            await forget(await asyncio.to_thread(trim_to_tasks, self._logs_dir, name, self._fence))
        for name, size in (await asyncio.to_thread(sizes, self._logs_dir)).items():
            log_bytes.labels(name).set(size)
            segments_removed.labels(name)
        log_bytes.labels(TRAJECTORIES).set(await asyncio.to_thread(self._pruner.trajectory_bytes))

    def _prune(self) -> Pruned:
        now = Instant(self._clock(), self._seconds())
        self._age_clock = (self._age_clock or AgeClock.start(newest_time(self._logs_dir), now)).at(now)
        return self._pruner.prune(needs(self._index_dir, self._adapters_dir, self._follower), self._age_clock.present)

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
