"""Show every training run that is known: its state, why it was asked for, how it goes, how it ended.

The runs are read from the shared adapters folder, so no trainer has to be up. `/v1/trainings` is the one resource for
them, at the orchestrator and at the trainer.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Annotated, ParamSpec, TypeVar

from fastapi import APIRouter, Path, Query

from ratchet.http.operation import OPERATOR, VIEWER, operation
from ratchet.http.paging import Cursor, Limit, cursor_of, place_of
from ratchet.http.problem import Problem, problems
from ratchet.http.work import Threads
from ratchet.runs.run import TrainingRun, place_of_run
from ratchet.runs.store import RunFolder, RunStore
from ratchet.service.errors import RegistryError
from ratchet.service.telemetry import Log
from schemas.api.page import Page
from schemas.api.runs import RunDetail, RunState, RunView
from schemas.messages.base import AgentId, DecodeError

log = Log("runs")

P = ParamSpec("P")
T = TypeVar("T")
AnyRun = TypeVar("AnyRun", bound=RunView)
Key = tuple[pathlib.Path, datetime]
"""A folder, and when it was asked for: one that was removed and asked for again is another."""
RunId = Annotated[str, Path(description="As in the list; it may hold slashes.")]


class TrainingRuns:
    """`known` are runs that may have no folder.

    The folder is believed before what is known, except about a refusal: the one that registers adapters knows best.
    """

    def __init__(
        self, adapters_dir: pathlib.Path, threads: Threads, known: Callable[[], Iterable[TrainingRun]] = tuple
    ) -> None:
        self._adapters_dir = adapters_dir
        self._store = RunStore(adapters_dir)
        self._threads = threads
        self._known = known
        self._ended: dict[Key, RunView] = {}
        """Each is read once."""
        self._unreadable: set[pathlib.Path] = set()

    async def views(self, agent_id: str | None = None, state: RunState | None = None) -> list[RunView]:
        """Return the runs of that agent and in that state, where given; the newest first.

        Raises RegistryError where the folder can't be read.
        """
        views = {(run.agent_id, run.run_id): run.view for run in self._known()}
        for recorded in await self._read(self._read_views):
            key = recorded.agent_id, recorded.run_id
            views[key] = _with_refusal(recorded, views.get(key))
        chosen = (one for one in views.values() if agent_id in (None, one.agent_id) and state in (None, one.state))
        return sorted(chosen, key=place_of_run, reverse=True)

    async def detail(self, run_id: str) -> RunDetail | None:
        """Return None if no run of that id is known, or its record is damaged. Raises RegistryError."""
        return await self._read(self._find, run_id, [run for run in self._known() if run.run_id == run_id])

    async def _read(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await self._threads.run(function, *args, **kwargs)
        except OSError as error:
            raise RegistryError(f"the training runs in {self._adapters_dir} can't be read: {error}") from error

    def _read_views(self) -> list[RunView]:
        views = dict(self._views())
        self._ended = {key: view for key, view in views.items() if view.ended}
        return list(views.values())

    def _views(self) -> Iterator[tuple[Key, RunView]]:
        for folder in self._store.folders():
            with suppress(FileNotFoundError):  # its record was removed meanwhile
                key = folder.path, folder.asked_at
                if view := self._ended.get(key):
                    yield key, view
                elif run := self._read_run(folder):
                    yield key, run.view

    def _find(self, run_id: str, known: list[TrainingRun]) -> RunDetail | None:
        for folder in self._store.find(run_id):
            with suppress(FileNotFoundError):
                if run := self._read_run(folder):
                    detail = run.detail(self._adapters_dir)
                    return _with_refusal(detail, known[0].view) if known else detail
        return known[0].detail(self._adapters_dir) if known else None

    def _read_run(self, folder: RunFolder) -> TrainingRun | None:
        """Return None for a damaged record, and warn of it once."""
        try:
            return folder.run
        except DecodeError as error:
            if folder.path not in self._unreadable:
                log.warning("unreadable", f"{folder.path} can't be read, it is not listed: {error.reason}")
            self._unreadable.add(folder.path)
            return None


def _with_refusal(recorded: AnyRun, known: RunView | None) -> AnyRun:
    """Return the run as refused where the trainer calls it trained, but its adapter could not be registered."""
    if known is None or (recorded.state, known.state) != ("trained", "refused"):
        return recorded
    return recorded.model_copy(update={"state": known.state, "reason": known.reason})


UNKNOWN = Problem(404, "No such training", "no training run of that id is known here", "unknown-training")


def trainings_router(runs: TrainingRuns) -> APIRouter:
    """Serve the fleet's runs, at the orchestrator."""
    return _router(runs, ("list_trainings", "training_status"), "trainings")


def runs_router(runs: TrainingRuns) -> APIRouter:
    """Serve the runs that a trainer has. Its MCP tools have names of their own, beside the orchestrator's."""
    return _router(runs, ("list_runs", "get_run"), "runs")


def _router(runs: TrainingRuns, tools: tuple[str, str], resource: str) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["trainings"])
    listing, showing = tools

    @router.get("/trainings", responses=problems(422, 503))
    @operation(VIEWER, OPERATOR, title="List training runs", tool=listing, resource=resource)
    async def trainings(
        agent_id: Annotated[AgentId | None, Query(description="Only this agent's.")] = None,
        state: Annotated[RunState | None, Query(description="Only in this state.")] = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> Page[RunView]:
        """List training runs, the newest first, by whomever they were asked for: what each made, or why it was refused
        or failed, with the numbers. No trainer has to be up.

        A request that waits in the queue `training` is there once a trainer has taken it, the fleet's own before. The
        trainer keeps RATCHET_TRAINER_KEEP_JOBS that ended, the orchestrator 100.
        """
        place = place_of(cursor, str, str)
        views = await runs.views(agent_id, state)
        rest = [view for view in views if place is None or place_of_run(view) < tuple(place)]
        more = cursor_of(list(place_of_run(rest[limit - 1]))) if len(rest) > limit else None
        return Page(items=rest[:limit], next=more)

    @router.get("/trainings/{run_id:path}", responses=problems(404, 503))
    @operation(VIEWER, OPERATOR, title="Show a training run", tool=showing, resource=resource)
    async def training(run_id: RunId) -> RunDetail:
        """Show one training run: how far it is and the seconds left, its curves so far, the groups it used and left
        out, and the reason if it was refused or failed.
        """
        found = await runs.detail(run_id)
        if found is None:
            raise UNKNOWN
        return found

    return router
