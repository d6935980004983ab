"""Every training run that can be known of: the trainer's records, and what was asked and heard here.

The records lie on the shared adapters folder (`ratchet/training_runs/store.py`), so that no trainer is asked, which
need not be there. Where both know of a run, its record goes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ratchet.http.work import Threads
from ratchet.service.errors import RegistryError
from ratchet.training_runs.reader import TrainingRunReader, listed_runs
from ratchet.training_runs.views import run_detail
from schemas.api.runs import RunDetail, RunState, RunView
from services.orchestrator.promotion.promoter import Promoter


class TrainingRuns:
    def __init__(self, adapters_dir: Path, promoters: Mapping[str, Promoter], threads: Threads) -> None:
        self._adapters_dir = adapters_dir
        self._desk = TrainingRunReader(adapters_dir)
        self._promoters = promoters
        self._threads = threads

    async def views(self, agent_id: str | None = None, state: RunState | None = None) -> list[RunView]:
        """The newest first. Raises RegistryError where the folder can't be read."""
        views = {(view.agent_id, view.run_id): view for view in self._known_here()}
        views |= {(view.agent_id, view.run_id): view for view in await self._threads.run(self._recorded)}
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
        if recorded is None and known is not None:
            return run_detail(known, self._adapters_dir, None)
        return recorded

    def _unreadable(self, error: OSError) -> RegistryError:
        return RegistryError(f"the training runs in {self._adapters_dir} can't be read: {error}")
