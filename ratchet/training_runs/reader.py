"""Every training run that can be known of, as the API shows them: those recorded on disk, and those known besides.

The records lie on the shared adapters folder, so that no trainer is asked, which need not be there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import ParamSpec, TypeVar

from ratchet.http.work import Threads
from ratchet.service.errors import RegistryError
from ratchet.service.telemetry import Log
from ratchet.training_runs.run import TrainingRun
from ratchet.training_runs.store import RunFolder, RunStore
from schemas.api.runs import RunDetail, RunState, RunView
from schemas.messages.base import DecodeError

log = Log("runs")

P = ParamSpec("P")
T = TypeVar("T")
AnyRun = TypeVar("AnyRun", bound=RunView)
Key = tuple[Path, datetime]
"""A folder, and when it was asked for: one that was removed and asked for again is another."""


class TrainingRuns:
    """`known`: runs that may have no folder. Where both know of one, its folder goes first, but for what became of its
    adapter: that is known by who registers it.
    """

    def __init__(
        self, adapters_dir: Path, threads: Threads, known: Callable[[], Iterable[TrainingRun]] = tuple
    ) -> None:
        self._adapters_dir = adapters_dir
        self._store = RunStore(adapters_dir)
        self._threads = threads
        self._known = known
        self._ended: dict[Key, RunView] = {}
        self._unreadable: set[Path] = set()

    async def views(self, agent_id: str | None = None, state: RunState | None = None) -> list[RunView]:
        """Of that agent and in that state, where given; the newest first.

        A run that has ended is read once. Raises RegistryError where the folder can't be read.
        """
        views = {(run.agent_id, run.run_id): run.view for run in self._known()}
        for recorded in await self._read(self._recorded):
            key = recorded.agent_id, recorded.run_id
            views[key] = _as_registered(recorded, views.get(key))
        chosen = (one for one in views.values() if agent_id in (None, one.agent_id) and state in (None, one.state))
        return sorted(chosen, key=place_of_run, reverse=True)

    async def detail(self, run_id: str) -> RunDetail | None:
        """None if no run of that id is known, or its record is damaged. Raises as `views`."""
        known = [run for run in self._known() if run.run_id == run_id]
        return await self._read(self._detail, run_id, known)

    async def _read(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await self._threads.run(function, *args, **kwargs)
        except OSError as error:
            raise RegistryError(f"the training runs in {self._adapters_dir} can't be read: {error}") from error

    def _recorded(self) -> list[RunView]:
        views = list(self._views())
        self._ended = {key: view for key, view in views if view.ended}
        return [view for _, view in views]

    def _views(self) -> Iterator[tuple[Key, RunView]]:
        for folder in self._store.every():
            with suppress(FileNotFoundError):  # its record was removed meanwhile
                key = folder.path, folder.asked_at
                if view := self._ended.get(key):
                    yield key, view
                elif run := self._run(folder):
                    yield key, run.view

    def _detail(self, run_id: str, known: list[TrainingRun]) -> RunDetail | None:
        for folder in self._store.named(run_id):
            with suppress(FileNotFoundError):
                if run := self._run(folder):
                    detail = run.detail(self._adapters_dir)
                    return _as_registered(detail, known[0].view) if known else detail
        return known[0].detail(self._adapters_dir) if known else None

    def _run(self, folder: RunFolder) -> TrainingRun | None:
        """None for a damaged one, which is said once."""
        try:
            return folder.run
        except DecodeError as error:
            if folder.path not in self._unreadable:
                log.warning("unreadable", f"{folder.path} can't be read, it is not listed: {error.reason}")
            self._unreadable.add(folder.path)
            return None


def place_of_run(view: RunView) -> tuple[str, str]:
    """What lists of runs are ordered by: when it was asked for, or else heard of, and its id."""
    at = view.asked_at or view.ended_at
    return at.isoformat(timespec="microseconds") if at else "", view.run_id


def _as_registered(recorded: AnyRun, known: RunView | None) -> AnyRun:
    """What a trainer takes for trained was refused all the same if its adapter could not be registered."""
    if known is None or (recorded.state, known.state) != ("trained", "refused"):
        return recorded
    return recorded.model_copy(update={"state": known.state, "reason": known.reason})
