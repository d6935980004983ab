"""Every training run that can be known of: the trainer's records, and what was asked and heard here.

The records lie on the shared adapters folder (`ratchet/training_runs/store.py`), so that no trainer is asked, which
need not be there. Where both know of a run, its record goes first, but for what became of its adapter here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from ratchet.http.threads import Threads
from ratchet.service.errors import RegistryError
from ratchet.training_runs.reader import TrainingRunReader, listed_runs
from ratchet.training_runs.views import run_detail
from schemas.api.runs import RunDetail, RunState, RunView
from services.orchestrator.promotion.promoter import Promoter

AnyRun = TypeVar("AnyRun", bound=RunView)


class TrainingRuns:
    def __init__(self, adapters_dir: Path, promoters: Mapping[str, Promoter], threads: Threads) -> None:
        self._adapters_dir = adapters_dir
        self._desk = TrainingRunReader(adapters_dir)
        self._promoters = promoters
        self._threads = threads

    async def views(self, agent_id: str | None = None, state: RunState | None = None) -> list[RunView]:
        """The newest first. Raises RegistryError where the folder can't be read."""
        views = {(view.agent_id, view.run_id): view for view in self._known_here()}
        for recorded in await self._threads.run(self._recorded):
            key = recorded.agent_id, recorded.run_id
            views[key] = _as_registered(recorded, views.get(key))
        return listed_runs(views.values(), agent_id, state)

    async def detail(self, run_id: str) -> RunDetail | None:
        """None if there is none of that id. Raises RegistryError where the folder can't be read."""
        known = next((view for view in self._known_here() if view.run_id == run_id), None)
        return await self._threads.run(self._detail, run_id, known)

    def _known_here(self) -> Iterator[RunView]:
        for promoter in self._promoters.values():
            yield from promoter.training.ended_runs
            if (waiting := promoter.training.open_run) is not None:
                yield waiting

    def _recorded(self) -> list[RunView]:
        try:
            return self._desk.views()
        except OSError as error:
            raise self._unreadable(error) from error

    def _detail(self, run_id: str, known: RunView | None) -> RunDetail | None:
        try:
            recorded = self._desk.detail(run_id)
        except OSError as error:
            raise self._unreadable(error) from error
        if recorded is None:
            return run_detail(known, self._adapters_dir, None) if known is not None else None
        return _as_registered(recorded, known)

    def _unreadable(self, error: OSError) -> RegistryError:
        return RegistryError(f"the training runs in {self._adapters_dir} can't be read: {error}")


def _as_registered(recorded: AnyRun, known: RunView | None) -> AnyRun:
    """What a trainer takes for trained was refused all the same if its adapter could not be registered."""
    if known is None or (recorded.state, known.state) != ("trained", "refused"):
        return recorded
    return recorded.model_copy(update={"state": known.state, "reason": known.reason})
