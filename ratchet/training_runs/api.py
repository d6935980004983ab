"""/v1/trainings: every training run that was asked for, how the present one goes, and why others came to nothing.

The one resource for them, at the orchestrator and at the trainer; the trainer has it under /v1/runs as well.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from ratchet.http.paging import Cursor, Limit, cursor_of, place_of
from ratchet.http.problem import Problem, problems
from ratchet.training_runs.reader import TrainingRuns, place_of_run
from schemas.api.page import Page
from schemas.api.runs import RunDetail, RunState, RunView
from schemas.messages.base import AgentId

RunId = Annotated[str, Path(description="As in the list; it may hold slashes.")]


def trainings_router(runs: TrainingRuns) -> APIRouter:
    unknown = Problem(404, "No such training", "no training run of that id is known here", "unknown-training")
    return _router(runs, "/v1/trainings", unknown)


def runs_router(runs: TrainingRuns) -> APIRouter:
    """The same under its older name."""
    sentence = "no run of that id is recorded here: GET /v1/runs lists them"
    return _router(runs, "/v1/runs", Problem(404, "No such run", sentence, "no-run"))


def _router(runs: TrainingRuns, path: str, unknown: Problem) -> APIRouter:
    router = APIRouter(tags=["trainings"])

    @router.get(path, responses=problems(422, 503))
    async def trainings(
        agent_id: Annotated[AgentId | None, Query(description="Only this agent's.")] = None,
        state: Annotated[RunState | None, Query(description="Only in this state.")] = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> Page[RunView]:
        """Training runs, by whomever they were asked for, the newest first; of each agent the last that ended.

        A request that waits in the queue `training` is there once a trainer has taken it, the fleet's own before. The
        trainer keeps RATCHET_TRAINER_KEEP_JOBS that ended, the orchestrator 100.
        """
        place = place_of(cursor, str, str)
        views = await runs.views(agent_id, state)
        rest = [view for view in views if place is None or place_of_run(view) < tuple(place)]
        more = cursor_of(list(place_of_run(rest[limit - 1]))) if len(rest) > limit else None
        return Page(items=rest[:limit], next=more)

    @router.get(path + "/{run_id:path}", responses=problems(404, 503))
    async def training(run_id: RunId) -> RunDetail:
        """One run: its state and why, the data it used and left out, its curves, also while it goes."""
        found = await runs.detail(run_id)
        if found is None:
            raise unknown
        return found

    return router
