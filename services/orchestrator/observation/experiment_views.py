"""Views of experiments: of a running one from the orchestrator's memory, of an ended one from the logs, and kept.

The bands cost some 30 µs a unit, so they are worked out in a thread, for each experiment by one at a time, and of a
running one again only after ten times as long as it took. One replay of the logs at a time.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from ratchet.concurrency.keyed import KeyedLock
from ratchet.experiments.experiment import ExperimentSnapshot
from ratchet.experiments.records import ExperimentRecord
from ratchet.experiments.view import ExperimentView, view_of, view_of_state
from ratchet.http.work import Threads
from services.orchestrator.promotion.arms import Arms

KEPT = 32
LEAST_S = 1.0
SPARING = 10.0


@dataclass(frozen=True, slots=True)
class _Kept:
    view: ExperimentView
    units: int | None
    """Finished units in it; None for an ended experiment, which does not change."""
    good_until: float


@dataclass(eq=False)
class ExperimentViews:
    arms: Mapping[str, Arms]
    logs_dir: Path
    threads: Threads

    def __post_init__(self) -> None:
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._locks = KeyedLock()
        self._replaying = asyncio.Lock()

    async def view(self, record: ExperimentRecord) -> ExperimentView:
        """A running one may be as old as a second, and longer where it has many units."""
        async with self._locks.of(record.experiment_id):
            kept = self._kept.get(record.experiment_id)
            if kept is None or not self._is_good(kept, record):
                kept = await self._make_view(record)
                self._keep(record.experiment_id, kept)
            return kept.view

    def _is_good(self, kept: _Kept, record: ExperimentRecord) -> bool:
        if record.ended is not None or kept.units is None:
            return kept.units is None and kept.view.record == record
        snapshot = self._snapshot(record)
        return monotonic() < kept.good_until or (snapshot is not None and snapshot.evidence.units == kept.units)

    async def _make_view(self, record: ExperimentRecord) -> _Kept:
        began = monotonic()
        snapshot = self._snapshot(record) if record.ended is None else None
        if snapshot is None:
            async with self._replaying:
                return _Kept(await self.threads.run(view_of, record, self.logs_dir), None, began)
        view = await self.threads.run(view_of_state, record, snapshot)
        spent = monotonic() - began
        return _Kept(view, snapshot.evidence.units, monotonic() + max(LEAST_S, SPARING * spent))

    def _snapshot(self, record: ExperimentRecord) -> ExperimentSnapshot | None:
        arms = self.arms.get(record.agent_id)
        trials = arms.trials if arms else ()
        return next((one.snapshot for running, one in trials if running.experiment_id == record.experiment_id), None)

    def _keep(self, experiment_id: str, kept: _Kept) -> None:
        self._kept[experiment_id] = kept
        self._kept.move_to_end(experiment_id)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
